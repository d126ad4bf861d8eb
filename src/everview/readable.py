"""Numbers as a person reads them."""

from __future__ import annotations

from math import floor, log10


def readable_bytes(count: int) -> str:
    """312 B, 4.1 kB, 27 MB"""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.1f} {unit}" if size < 10 and unit != "B" else f"{size:.0f} {unit}"


def readable_seconds(seconds: float) -> str:
    """0.4 ms, 27 ms, 1.3 s, 45 s"""
    number, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
    return f"{number:.1f} {unit}" if number < 10 else f"{number:,.0f} {unit}"


def about(number: float) -> str:
    """A rough number: ~34,000"""
    if number < 1:
        return "0" if number < 0.05 else f"~{number:.1f}"
    digits = max(0, floor(log10(number)) - 1)
    return f"~{round(number, -digits):,.0f}"
