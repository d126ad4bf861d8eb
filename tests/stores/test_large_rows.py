"""Rows that are more, all together, than Arrow has room for in one array: here that is little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import everview as ev
from everview.codec import buffers
from everview.stores.embedded import log, region, scan, writer
from everview.stores.embedded.state import ShardState
from tests.shards import new_shard

ROOM = 400_000
COUNT, LENGTH = 120, 10_000


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        monkeypatch.setattr(buffers, "MOST_BYTES", ROOM)
        for module, name in (
            (scan, "BATCH_BYTES"),
            (region, "PIECE_BYTES"),
            (log, "CHUNK_BYTES"),
            (log, "READ_BYTES"),
            (writer, "CHUNK_BYTES"),
        ):
            monkeypatch.setattr(module, name, ROOM // 4)
        yield db


def row(number: int, letter: str) -> dict[str, object]:
    return {"id": number, "text": letter * LENGTH}


def test_they_are_written_read_and_deleted(db: ev.Database) -> None:
    table = db.create_table("t", {"id": "INT", "text": "STRING"}, "id", regions=1)
    first, second = ([row(i, letter) for i in range(COUNT)] for letter in "ab")
    table.put(first)
    assert list(table.scan()) == first
    snapshot = table.snapshot()
    table.put(second)
    assert table.get_many(range(COUNT)).to_pylist() == second
    assert [one for batch in snapshot.scan() for one in batch.to_pylist()] == first
    assert table.delete(range(COUNT)).rows == COUNT
    assert len(table) == 0
    changes = [one for batch in table.changes() for one in batch.to_pylist()]
    assert [one["before"] for one in changes] == [None] * COUNT + first + second
    assert [one["after"] for one in changes] == first + second + [None] * COUNT


def test_rows_of_views_are_read(db: ev.Database) -> None:
    shard = new_shard(db.store, "s", 0)
    keys = [b"%03d" % number for number in range(COUNT)]
    values = [b"%d" % (number % 10) * LENGTH for number in range(COUNT)]

    def work(state: ShardState) -> pa.Table:
        state.put_many(keys, values)
        return pa.table({})

    shard.apply(1, 1, work)
    batches = list(shard.values())
    assert [value for batch in batches for value in batch] == values
    assert max(sum(map(len, batch)) for batch in batches) <= 2 * ROOM


def test_what_is_too_much_in_any_case_is_told(db: ev.Database) -> None:
    table = db.create_table("t", {"id": "INT", "text": "STRING"}, "id", regions=1)
    with pytest.raises(ev.EverviewError, match="bytes of rows would be needed at once"):
        table.put({"id": 1, "text": "a" * 500_000})
    assert len(table) == 0
