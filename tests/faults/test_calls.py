"""A maintainer one of whose calls fails, at whichever place, says so and loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import DatabaseError, EverviewError, WriteError
from everview.maintain.views import rebuild_view
from tests.proofs import Prove
from tests.records import records

from . import bank
from .calls import Calls, fail_at_read, fail_at_sync, fail_at_write

COPY = "copy"
Fail = Callable[[pytest.MonkeyPatch, Calls], None]
# what fails, with which error, and in how many regions a table is: so many calls there are
KINDS: dict[str, tuple[Fail, type[EverviewError], int]] = {
    "write": (fail_at_write, WriteError, 16),
    "sync": (fail_at_sync, WriteError, 16),
    "read": (fail_at_read, DatabaseError, 1),
}


class Books:
    """Transfers, a copy of them and credits by branch, which are changed in the same places again
    and again, so that maintenance always has the same calls."""

    def __init__(self, db: ev.Database, loads: bool) -> None:
        self.db = db
        self._loads = loads
        self._chance = random.Random(1)

    def change(self) -> None:
        rows = [bank.transfer(random.Random(n), n) for n in range(12)]
        for row in rows:
            row["amount"] = Decimal(self._chance.randrange(1, 100_000)) / 100
        self.db.table("transfers").put(rows)
        if self._loads:
            rebuild_view(self.db.store, COPY)

    def states(self) -> dict[str, Any]:
        """Of the views that are not to be loaded."""
        return {view.name: view.states for view in records(self.db) if view.is_live}

    def check(self, current: bool) -> None:
        """That the views are as of one epoch; of the last one, if they are to be current."""
        if not self.db.view(COPY).is_loaded:
            return
        assert bank.differences(self.db, COPY) == (0, 0, 0), "lost, twice, of another time"
        with self.db.pin() as at:
            rows, credit = at.table("transfers").to_arrow(), at.view("credits").to_arrow()
        assert pc.sum(credit["credit"]).as_py() == pc.sum(rows["amount"]).as_py()
        if current:
            assert self.db.view(COPY).freshness.total_seconds() == 0


@pytest.fixture
def books(
    spark: Engine, sail: Engine, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> Iterator[Books]:
    regions = KINDS[kind][-1]
    with ev.open(tmp_path / "bank.ev", create=True) as db:
        db.engines.use(sail)
        accounts = db.create_table("accounts", {"id": "INT", "branch": "INT"}, "id", regions)
        columns = {"from_account": "INT", "to_account": "INT", "amount": "DECIMAL(12,2)"}
        db.create_table("transfers", {"id": "BIGINT"} | columns, "id", regions)
        accounts.put([{"id": i, "branch": i % bank.BRANCHES} for i in range(bank.ACCOUNTS)])
        db.sql(f"CREATE MATERIALIZED VIEW credits AS {bank.VIEWS['credits']}")
        db.sql(f"CREATE MATERIALIZED VIEW {COPY} AS SELECT * FROM transfers")
        books = Books(db, loads=request.config.getoption("--long"))
        books.change()
        db.maintain()
        yield books


@pytest.mark.parametrize("kind", KINDS)
def test_any_call_may_fail(
    books: Books, kind: str, proof: Prove, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th one of an epoch, for every n, once and for good; in the long form also of a load."""
    fail, error, _ = KINDS[kind]
    calls, failed = Calls(), 0
    fail(monkeypatch, calls)
    for for_good in (False, True):
        for step in count(1):
            calls.fail_at(0)
            books.change()
            before = books.states()
            calls.fail_at(step, for_good)
            with suppress(error):
                assert not books.db.maintain().failed
                assert calls.made < step, "it was not told"
                break
            calls.fail_at(0)
            books.check(current=False)
            assert not books.db.maintain().failed
            books.check(current=True)
            assert before.items() <= books.states().items(), "it made state anew"
            failed += 1
        assert step > 10
    proof(f"any {kind} fails, once or for good", f"{failed:,} times", lost=0, twice=0)
