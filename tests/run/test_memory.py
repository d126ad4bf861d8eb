"""What a large task took is given back when it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
import pytest

from everview.run import memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def many_values(rows: int) -> Iterator[int]:
    """Values as Arrow and Python have them, much of them at once."""
    table = pa.table({"text": pa.array([f"{number:>200}" for number in range(rows)])})
    yield len(table["text"].to_pylist())


def test_a_large_task_leaves_no_memory_behind() -> None:
    before = memory.private_bytes()
    peak = 0
    for count in memory.tidied(many_values)(3_000_000):
        peak = memory.private_bytes()
        assert count == 3_000_000
    assert peak > before + 2 * memory.SPARE, "too little to tell"
    assert memory.private_bytes() < before + memory.SPARE


def test_small_tasks_let_the_allocator_keep_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(memory.tidied(many_values)(3_000_000)) == [3_000_000]
    asked = list[str]()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: asked.append(str(name)))
    assert list(memory.tidied(many_values)(10)) == [10]
    assert asked == []
