"""What maintenance does first: after a crash of the machine, and with logs that lost their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.catalog import EPOCH, EPOCHS, INTENT, INTENTS, UNSYNCED, VIEWS, Epoch, Unsynced
from everview.maintain import recovery
from everview.maintain.cut import time_now
from everview.maintain.recovery import ahead_of_logs, recover, settle_if_quiet
from everview.maintain.views import maintenance_paused
from tests.records import a_view, record_of

CHANGES = 5


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ev.Database]:
    """A table of two regions, five changes in all, that a live view has followed to its end."""
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.create_table("t", {"id": "INT"}, "id", regions=2)
        db.table("t").put([{"id": i} for i in range(CHANGES)])
        epoch = Epoch(3, {"t": ends(db)}, time_now())
        view = a_view(states={"view": "s"}, status="live", load_notes=1)
        db.store.catalog.write({VIEWS["v"]: view, EPOCH: epoch, INTENT: Epoch(4, {"t": ends(db)})})
        yield db


def ends(db: ev.Database) -> dict[int, int]:
    return {region: log.last for region, log in db.store.log("t").items()}


def test_where_nothing_was_lost_nothing_is_recovered(db: ev.Database) -> None:
    before = record_of(db, "v")
    with maintenance_paused(db.store) as token:
        assert recover(db.store, token) is None
    assert record_of(db, "v") == before
    assert db.store.catalog.epoch.number == 3


def test_after_a_crash_of_the_machine_all_views_begin_anew(db: ev.Database) -> None:
    db.store.catalog.write({UNSYNCED: Unsynced("an earlier boot")})
    with maintenance_paused(db.store) as token:
        reason = recover(db.store, token)
    assert reason is not None
    assert "all views are loaded again" in reason
    assert (record_of(db, "v").status, record_of(db, "v").states) == ("new", {})
    assert db.store.catalog.epoch == Epoch(3, {}, db.store.catalog.epoch.time)
    assert db.store.catalog.get(INTENT) is None
    with maintenance_paused(db.store) as token:
        assert recover(db.store, token) is None, "the crash is recovered from once"


def test_each_group_begins_anew_at_its_own_epoch(db: ev.Database) -> None:
    end, catalog = ends(db), db.store.catalog
    slow = Epoch(8, {"t": {**end, 1: end[1] + 2}}, time_now())
    catalog.write({EPOCHS["slow"]: slow, INTENTS["slow"]: Epoch(9, slow.positions)})
    catalog.write({VIEWS["w"]: a_view("w", group="slow", status="live", states={"view": "r"})})
    catalog.write({UNSYNCED: Unsynced("an earlier boot")})
    with maintenance_paused(db.store) as token:
        reason = recover(db.store, token)
    assert reason is not None
    assert f"up to {end[1] + 2}" in reason
    assert record_of(db, "w").status == "new"
    assert catalog.epoch_of("slow") == Epoch(8, {}, slow.time)
    assert catalog.epoch.number == 3
    assert catalog.all(INTENTS) == {}


def test_the_reason_names_changes_that_the_machine_lost(db: ev.Database) -> None:
    end = ends(db)
    lost = Epoch(3, {"t": {**end, 1: end[1] + 2}})
    db.store.catalog.write({UNSYNCED: Unsynced("an earlier boot"), EPOCH: lost})
    with maintenance_paused(db.store) as token:
        reason = recover(db.store, token)
    assert reason is not None
    assert f"table t, region 1: its log ends at change {end[1]}" in reason
    assert f"up to {end[1] + 2}" in reason


@pytest.mark.parametrize(
    ("further", "is_ahead"), [({0: 0, 1: 0}, False), ({0: -1, 1: 0}, False), ({0: 0, 1: 1}, True)]
)
def test_an_epoch_is_ahead_of_a_log_that_ends_before_it(
    db: ev.Database, further: dict[int, int], is_ahead: bool
) -> None:
    positions = {region: end + further[region] for region, end in ends(db).items()}
    assert bool(ahead_of_logs(db.store, Epoch(3, {"t": positions}))) is is_ahead


def test_a_table_that_is_gone_has_no_log_to_be_ahead_of(db: ev.Database) -> None:
    assert ahead_of_logs(db.store, Epoch(3, {"gone": {0: 7}})) == {}


@pytest.mark.parametrize("seconds", [0.0, 2 * recovery.QUIET_SECONDS])
def test_state_is_settled_when_the_last_epoch_is_a_while_ago(
    db: ev.Database, seconds: float
) -> None:
    with maintenance_paused(db.store) as token:
        db.store.states.begin(token)
        assert db.store.catalog.get(UNSYNCED) is not None
        epoch = db.store.catalog.epoch
        past = Epoch(epoch.number, epoch.positions, time_now() - int(seconds * 1e6))
        db.store.catalog.write({EPOCH: past}, token)
        settle_if_quiet(db.store, token)
    assert (db.store.catalog.get(UNSYNCED) is None) is (seconds > 0)
