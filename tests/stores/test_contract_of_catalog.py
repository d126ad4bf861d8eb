"""What every store does with records: the behaviour suite of the Catalog contract."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread
from typing import Any

import pytest

from everview.catalog import (
    CHANGES,
    CHANGES_OF_GROUPS,
    CONSTANTS,
    EPOCH,
    EPOCHS,
    INTENT,
    INTENTS,
    MAIN,
    NO_EPOCH,
    PIN_LIMIT,
    REPLACEMENTS,
    VIEWS,
    WAITING,
    Changes,
    Constants,
    Epoch,
    Key,
    PinLimit,
    Replacement,
    Waiting,
    changes_key,
    epoch_key,
    intent_key,
)
from everview.catalog.views import Definition
from everview.errors import Conflict, InUse, Superseded, TableExists, TableNotFound
from everview.plan.nodes import Order
from everview.schema import TableSchema
from everview.stores.base import WORK, Store
from tests.records import a_view

FULL = replace(
    a_view("Views", tables=("t", "T 2"), states={"a1": "s1", "view": "s2"}),
    definition=Definition("SELECT 'é'", ("a", "b"), True),
    order=(Order("id", True, False),),
    views={"inner": "Other"},
    widths={"t": 3},
    status="stopped",
    error="it failed",
    stopped_at=4,
    positions={"t": {0: 2**62, 3: 0}},
    loaded_at=2,
    load_notes=True,
    rebuilding=True,
)
RECORDS = {
    VIEWS["Views"]: FULL,
    VIEWS["hourly"]: replace(a_view("hourly"), group="hour"),
    REPLACEMENTS["Views"]: Replacement(FULL, "Root"),
    CHANGES["T"]: Changes(((1, 5), (3, 1))),
    CHANGES_OF_GROUPS["hour/t"]: Changes(((4, 5),)),
    CONSTANTS["sail"]: Constants({"epoch": 0.5}),
    EPOCH: Epoch(7, {"t": {0: 1, 1: 2}}, 99),
    INTENT: Epoch(8, {}, 100),
    EPOCHS["hour"]: Epoch(2, {"t": {0: 1, 1: 0}}, 98),
    INTENTS["hour"]: Epoch(3, {}, 100),
    WAITING: Waiting("no memory", ("hour",)),
    PIN_LIMIT: PinLimit(2.5),
}


@pytest.mark.parametrize("key", RECORDS, ids=lambda key: key.text)
def test_a_record_is_read_as_it_was_written_until_it_is_removed(
    store: Store, key: Key[Any]
) -> None:
    assert store.catalog.get(key) is None
    store.catalog.write({key: RECORDS[key]})
    assert store.catalog.get(key) == RECORDS[key]
    store.catalog.write({key: None})
    assert store.catalog.get(key) is None


def test_all_records_of_a_kind_come_by_key_and_names_in_any_case(store: Store) -> None:
    store.catalog.write({VIEWS[name]: a_view(name) for name in ("b", "A", "ab")})
    assert [key.name for key in store.catalog.all(VIEWS)] == ["a", "ab", "b"]
    assert store.catalog.get(VIEWS["AB"]) == a_view("ab")
    assert store.catalog.all(REPLACEMENTS) == {}


def test_records_change_together_or_not_at_all(store: Store) -> None:
    store.catalog.write({EPOCH: Epoch(1), VIEWS["v"]: a_view()})
    changes = {EPOCH: Epoch(2), VIEWS["v"]: None, WAITING: Waiting("x")}
    for expected in (
        {VIEWS["v"]: None},
        {EPOCH: NO_EPOCH},
        {EPOCH: Epoch(1), WAITING: Waiting("")},
    ):
        with pytest.raises(Conflict):
            store.catalog.write(changes, expected=expected)
        assert store.catalog.get(EPOCH) == Epoch(1)
        assert store.catalog.get(VIEWS["v"]) == a_view()
    store.catalog.write(changes, expected={EPOCH: Epoch(1), VIEWS["v"]: a_view(), WAITING: None})
    assert store.catalog.get(EPOCH) == Epoch(2)
    assert store.catalog.all(VIEWS) == {}


def test_of_several_who_expect_the_same_one_alone_writes(store: Store) -> None:
    store.catalog.write({EPOCH: Epoch(0)})

    def count() -> None:
        done = 0
        while done < 20:
            now = store.catalog.get(EPOCH)
            assert now is not None
            try:
                store.catalog.write({EPOCH: Epoch(now.number + 1)}, expected={EPOCH: now})
                done += 1
            except Conflict:
                pass

    threads = [Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.catalog.get(EPOCH) == Epoch(80)


def test_tables_are_there_or_not_at_that_moment(store: Store) -> None:
    store.create_table(TableSchema.of("T", {"id": "INT"}, "id"))
    with pytest.raises(TableNotFound):
        store.catalog.write({EPOCH: Epoch(1)}, tables={"t": True, "u": True})
    with pytest.raises(TableExists):
        store.catalog.write({EPOCH: Epoch(1)}, tables={"t": False})
    assert store.catalog.get(EPOCH) is None
    store.catalog.write({VIEWS["v"]: a_view()}, tables={"t": True, "u": False})
    with pytest.raises(InUse, match="view v"):
        store.drop_table("t")
    with pytest.raises(TableExists, match="view V"):
        store.create_table(TableSchema.of("V", {"id": "INT"}, "id"))


def test_a_token_that_is_not_the_newest_writes_nothing(store: Store) -> None:
    with store.leases.hold(WORK, 10.0, lambda holder: None) as token:
        store.catalog.write({EPOCH: Epoch(1)}, token)
        with pytest.raises(Superseded):
            store.catalog.write({EPOCH: Epoch(2)}, token - 1)
    assert store.catalog.get(EPOCH) == Epoch(1)


def test_each_group_has_records_of_its_own(store: Store) -> None:
    catalog = store.catalog
    assert (catalog.groups(), catalog.epoch_of("hour")) == ([MAIN], NO_EPOCH)
    catalog.write({epoch_key(MAIN): Epoch(5, {"t": {0: 9}, "u": {0: 1}})})
    catalog.write({epoch_key("hour"): Epoch(2, {"t": {0: 4}, "v": {0: 2}})})
    catalog.write({intent_key("hour"): Epoch(3), changes_key("hour", "t"): Changes(((2, 1),))})
    catalog.write({VIEWS["daily"]: replace(a_view("daily"), group="day")})
    assert (catalog.epoch, catalog.get(EPOCH)) == (catalog.epoch_of(MAIN), catalog.epoch)
    assert (catalog.epoch.number, catalog.epoch_of("hour").number) == (5, 2)
    assert catalog.get(INTENT) is None
    assert catalog.all(CHANGES) == {}
    assert list(catalog.all(EPOCHS)) == [EPOCHS["hour"]]
    assert catalog.groups() == [MAIN, "day", "hour"]
    of_u_and_v = {"u": {0: 1}, "v": {0: 2}}
    assert catalog.positions_in([MAIN, "hour"]) == {"t": {0: 9}, **of_u_and_v}
    assert catalog.positions_in(["hour", MAIN]) == {"t": {0: 4}, **of_u_and_v}


def test_records_of_the_main_group_are_as_they_were_before_there_were_groups() -> None:
    assert "group" not in a_view().to_document()
    assert Waiting("why").to_document() == {"why": "why"}
    assert (epoch_key(MAIN), intent_key(MAIN)) == (EPOCH, INTENT)
    assert changes_key(MAIN, "T") == CHANGES["T"]
    assert Waiting("why").holds("hour")
    assert not Waiting("why", (MAIN,)).holds("hour")
