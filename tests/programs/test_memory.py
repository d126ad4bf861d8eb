"""What a large task took is given back when it is done."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
# in a process of its own: others keep what was there before
TASKS = """
import pyarrow as pa
from everview.programs import memory

def many_values(rows):
    table = pa.table({"text": pa.array([f"{number:>200}" for number in range(rows)])})
    yield len(table["text"].to_pylist())

def run(rows):
    (peak,) = [memory.private_bytes() for _ in memory.tidied(many_values)(rows)]
    return peak, memory.private_bytes()

before = memory.private_bytes()
print(before + memory.SPARE, *run(2_000_000))
kept_bytes = memory._bytes_after_tidying
run(10)
print(kept_bytes, memory._bytes_after_tidying)
"""


def test_a_large_task_gives_its_memory_back_and_a_small_one_need_not() -> None:
    found = subprocess.run(
        [sys.executable, "-c", TASKS], capture_output=True, text=True, check=True
    )
    large, small = (list(map(int, line.split())) for line in found.stdout.splitlines())
    allowed, peak, left = large
    assert peak > allowed, "too little to tell"
    assert left < allowed
    assert len(set(small)) == 1, "it was looked at, and nothing was given back"
