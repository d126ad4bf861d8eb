"""Space: what a reader keeps from being used again, who that is, and giving back what is free."""

from __future__ import annotations

import gc
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import CONSTANTS, Constants
from everview.cli.main import main
from everview.errors import DatabaseError, PinExpired, ReadOnly
from everview.stores.embedded import pins, space

COLUMNS = {"id": "INT", "text": "STRING"}


def rows(first: int, count: int, text: str = "") -> list[dict[str, Any]]:
    return [{"id": key, "text": f"{text} {key} ".ljust(300)} for key in range(first, first + count)]


@pytest.fixture
def table(db: ev.Database) -> ev.Table:
    """A table of 2,000 rows."""
    table = db.create_table("t", COLUMNS, "id", regions=1)
    table.put(rows(0, 2000))
    return table


def write_much(table: ev.Table, writes: int = 40) -> None:
    """Replace rows again and again, and nothing more."""
    for n in range(writes):
        table.put(rows(n * 10, 500, f"write {n}"))
        table.trim()


def said(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_what_a_pin_kept_is_given_back_when_it_has_ended(db: ev.Database, table: ev.Table) -> None:
    table.trim()
    write_much(table, 5)
    before = db.space().bytes
    with db.pin() as at:
        write_much(table)
        grown = db.space()
        assert grown.bytes > 4 * before
        assert db.compact().given_back < grown.bytes // 4
        assert [row["text"] for row in at.table("t").scan(start=1999)] == [rows(1999, 1)[0]["text"]]
    now = list(table.scan())
    length = Path(db.path, "tables/000001/0/data.mdb").stat().st_size
    assert db.space().free > grown.bytes // 2
    report = db.compact()
    assert report.given_back > grown.bytes // 2
    assert report.after.bytes < 2 * before
    assert report.skipped == {}
    assert db.space().bytes == report.after.bytes
    assert Path(db.path, "tables/000001/0/data.mdb").stat().st_size == length
    assert list(table.scan()) == now
    write_much(table)
    assert len(table) == 2000


def test_status_says_who_keeps_space_and_that_some_is_free(
    db: ev.Database, table: ev.Table
) -> None:
    assert "process" not in said("status", db.path)
    with db.pin():
        write_much(table)
        held = said("status", db.path)
        assert f"process {os.getpid()} keeps " in held
        assert "MB of old rows alive, with a pin of epoch 0 since 2" in held
        assert "compact" not in held
        assert f"process {os.getpid()} keeps " in said("compact", db.path)
    free = said("status", db.path)
    assert "process" not in free
    assert f"are free; everview compact {db.path} gives them back" in free
    assert " given back" in said("compact", db.path)
    assert "are free" not in said("status", db.path)


def test_another_read_that_does_not_end_is_told_too(db: ev.Database, table: ev.Table) -> None:
    scan = table.batches(batch_rows=10)
    next(scan)
    write_much(table)
    assert "with a read that has not ended" in said("status", db.path)
    del scan
    gc.collect()
    assert "process" not in said("status", db.path)


@pytest.mark.parametrize("seed", range(4))
def test_pins_read_what_they_did_whatever_is_given_back(db: ev.Database, seed: int) -> None:
    chance = random.Random(seed)
    table = db.create_table("t", COLUMNS, "id", regions=1)
    model: dict[int, str] = {}
    open_pins: list[tuple[ev.Pin, dict[int, str]]] = []
    with ExitStack() as stack:
        for step in range(40):
            some = rows(chance.randrange(1000), chance.choice([1, 20, 300]), f"step {step}")
            if chance.random() < 0.7:
                table.put(some)
                model |= {row["id"]: row["text"] for row in some}
            else:
                table.delete([row["id"] for row in some])
                for row in some:
                    model.pop(row["id"], None)
            if chance.random() < 0.5:
                table.trim()
            if chance.random() < 0.3:
                open_pins.append((stack.enter_context(db.pin()), dict(model)))
            if open_pins and chance.random() < 0.25:
                open_pins.pop(chance.randrange(len(open_pins)))[0].close()
            db.compact()
            for pin, then in [*open_pins, (db, model)]:
                assert {row["id"]: row["text"] for row in pin.table("t").scan()} == then


def test_the_catalog_and_states_are_compacted_too(db: ev.Database) -> None:
    db.store.states.create("s", [0])
    environment = db.store.states.shard("s", 0).environment  # type: ignore[attr-defined]
    for n in range(300):
        db.store.catalog.write({CONSTANTS[f"{n}"]: Constants({"text": "x" * 5000})})
    environment.update(lambda txn: [txn.put(b"%d" % n, b"x" * 5000) for n in range(300)])
    for n in range(300):
        db.store.catalog.write({CONSTANTS[f"{n}"]: None})
    environment.update(lambda txn: [txn.delete(b"%d" % n) for n in range(300)])
    told: list[tuple[str, int, int]] = []
    assert db.compact(lambda *what: told.append(what)).given_back > 2_500_000
    assert told == [("catalog", 0, 2), ("state/s/0", 1, 2)]
    assert db.store.catalog.all(CONSTANTS) == {}


def test_who_may_only_read_does_not_compact(db: ev.Database) -> None:
    with ev.open(db.path, readonly=True) as reader, pytest.raises(ReadOnly):
        reader.compact()


def test_a_file_system_without_holes_is_told(
    db: ev.Database, table: ev.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "_PUNCH_HOLE", 1 << 30)
    write_much(table, 3)
    report = db.compact()
    assert report.given_back == 0
    assert "can't take space back" in report.skipped["tables/000001/0"]
    done = CliRunner().invoke(main, ["compact", db.path])
    assert done.exit_code == 1
    assert "tables/000001/0 is left as it is: the file system can't take" in done.output


def test_a_pin_ends_at_its_age_and_says_so(db: ev.Database, table: ev.Table) -> None:
    with db.pin(max_age=0.2) as at:
        assert len(at.table("t")) == 2000
        scan = at.table("t").batches(batch_rows=10)
        read = next(scan).num_rows
        wait_until_over(at)
        assert db.pins() == []
        write_much(table, 3)
        assert db.space().held, "a read that has begun may finish"
        assert read + sum(batch.num_rows for batch in scan) == 2000
        assert not db.space().held
        with pytest.raises(PinExpired, match=r"limit of 0\.2 seconds.*a new pin"):
            list(at.table("t").scan())


def wait_until_over(pin: ev.Pin) -> None:
    until = time.monotonic() + 10
    while not pin._store._hold._is_over:
        assert time.monotonic() < until
        time.sleep(0.005)


def test_the_limit_of_a_database_is_that_of_its_pins(db: ev.Database, table: ev.Table) -> None:
    assert db.pin_limit is None
    assert "limit for new pins: 600 s" in said("pins", db.path, "--limit", "600").replace(
        "10 min", "600 s"
    )
    with db.pin(), db.pin(max_age=7), db.pin(max_age=10_000), ev.open(db.path) as other:
        assert [pin.max_age for pin in other.pins()] == [600, 7, 600]
        with other.pin("t"):
            assert [pin.max_age for pin in db.pins()] == [600, 7, 600, 600]
        assert "| none " not in said("pins", db.path)
    assert "limit for new pins: none" in said("pins", db.path, "--no-limit")
    assert db.pin_limit is None
    assert db.pins() == []
    both = CliRunner().invoke(main, ["pins", db.path, "--limit", "5", "--no-limit"])
    assert both.exit_code == 2
    with pytest.raises(DatabaseError, match="max_age"):
        db.pin(max_age=0)


def test_a_pin_that_nobody_has_any_more_is_no_longer_listed(db: ev.Database) -> None:
    pin = db.pin(max_age=1000)
    assert [note.process for note in db.pins()] != []
    del pin
    gc.collect()
    assert db.pins() == []


def test_the_note_of_a_process_that_was_killed_goes(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = db.pin()
    with monkeypatch.context() as patch:
        patch.setattr(pins, "_is_alive", lambda process: False)
        assert db.pins() == []
    assert list(Path(db.path, "pins").iterdir()) == []
    pin.close()
