"""Numbers as a person reads them."""

from __future__ import annotations

from everview.readable import about, readable_bytes, readable_seconds


def test_times_are_readable() -> None:
    times = (0.0, 0.000_44, 0.0123, 0.9994, 1.26, 4_500.0)
    shown = ["0.0 ms", "0.4 ms", "12 ms", "999 ms", "1.3 s", "4,500 s"]
    assert [*map(readable_seconds, times)] == shown


def test_bytes_are_readable() -> None:
    sizes = (0, 999, 1_000, 12_345, 9_960_000, 3 * 10**13)
    assert [*map(readable_bytes, sizes)] == ["0 B", "999 B", "1.0 kB", "12 kB", "10.0 MB", "30 TB"]


def test_an_estimate_has_two_digits() -> None:
    numbers = (0, 0.01, 0.26, 1.4, 9.6, 128, 33_882, 1_250_000)
    shown = ["0", "0", "~0.3", "~1", "~10", "~130", "~34,000", "~1,200,000"]
    assert [*map(about, numbers)] == shown
