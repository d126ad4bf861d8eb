"""Views over random tables, taken through a history of changes and compared after each epoch."""

from __future__ import annotations

import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import UnsupportedSql
from everview.estimate import costs as estimating
from everview.plan.rules import order_joins, replicate_small_side
from everview.programs import step

from .oracle import Duck, differences, rows_of
from .queries import Queries
from .tables import Change, Table, content, history, tables
from .tree import Query

_MAY_BE_EMPTY = 0.1  # of all that never have a row, this share


@dataclass(frozen=True)
class Case:
    """`step` changes are one epoch; the views from `later` on are created after the first."""

    tables: tuple[Table, ...]
    changes: tuple[Change, ...]
    queries: tuple[Query, ...]
    step: int
    later: int = 0
    whole: tuple[int, ...] = ()  # queries that the three after them are the parts of


@dataclass(frozen=True)
class Failure:
    """What a view did, after so many changes; `place` None is all views together."""

    place: int | None
    done: int
    what: str

    @property
    def kind(self) -> str:
        """What stays the same when the case is made smaller."""
        return re.split(r"[:(]", self.what)[0].split()[0]


@dataclass
class Outcome:
    queries: int = 0
    compared: int = 0
    epochs: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        self.queries += other.queries
        self.compared += other.compared
        self.epochs += other.epochs
        self.refused += other.refused
        for what, time_ in other.seconds.items():
            self.seconds[what] = self.seconds.get(what, 0.0) + time_


def random_case(seed: int, views: int) -> Case:
    """Views that mostly have rows, at the end or halfway."""
    chance = random.Random(seed)
    schema = tables(chance)
    changes = history(chance, schema, chance.choice([9, 10, 12]))
    make = Queries(chance, schema)
    ducks = [_loaded(schema, changes[:done]) for done in (len(changes) // 2, len(changes))]
    queries = make.partitioned()
    while len(queries) < views:
        query = make.query()
        if chance.random() < _MAY_BE_EMPTY or any(duck.rows(query.sql("duck")) for duck in ducks):
            queries.append(query)
    for duck in ducks:
        duck.close()
    step = chance.choices([1, 3, len(changes)], [1, 7, 2])[0]
    return Case(tuple(schema), tuple(changes), tuple(queries), step, views // 2, whole=(0,))


def _loaded(schema: Sequence[Table], changes: Sequence[Change]) -> Duck:
    duck = Duck()
    duck.load({table.name: content(changes, table) for table in schema})
    return duck


class Run:
    """One case in one database."""

    def __init__(self, case: Case, db: ev.Database, seed: int = 0) -> None:
        self.case, self.outcome = case, Outcome()
        self._db, self._duck, self._chance = db, Duck(), random.Random(seed)
        self._live: set[int] = set()
        self._done = 0

    def run(self) -> Outcome:
        for table in self.case.tables:
            self._db.sql(table.sql())
        places = range(len(self.case.queries))
        self._create(places[: self.case.later])
        for changes in _batched(self.case.changes, self.case.step):
            for change in changes:
                self._apply(change)
            self._done += len(changes)
            if self._done == len(changes):
                self._create(places[self.case.later :])
            if not self._maintain():
                break
            self._compare()
        self._duck.close()
        self.outcome.queries = len(self.case.queries)
        self.outcome.compared = len(self._live)
        return self.outcome

    def _apply(self, change: Change) -> None:
        table = self._db.table(change.table)
        if change.put:
            table.put(list(change.put))
        if change.delete:
            table.delete(list(change.delete))

    def _create(self, places: Sequence[int]) -> None:
        for place in places:
            with self._timed("create"), self._by_cost():
                query = self.case.queries[place].sql("spark")
                try:
                    self._db.sql(f"CREATE MATERIALIZED VIEW v{place} AS {query}")
                    self._live.add(place)
                except UnsupportedSql as error:
                    self.outcome.refused[_reason(error)] += 1
                except Exception as error:  # refusals apart, any is a failure
                    self._fail(place, f"{type(error).__name__} at CREATE: {str(error)[:2000]}")

    @contextmanager
    def _by_cost(self) -> Iterator[None]:
        """Half of the views by the rules that go by costs, which leave such small tables alone:
        any order of joins is then better, and any table small beside another."""
        with pytest.MonkeyPatch.context() as patched:
            if self._chance.random() < 0.5:
                patched.setattr(estimating, "_FEW_ROWS", 0)
                patched.setattr(sys.modules[order_joins.__module__], "BETTER", 0.0)
                patched.setattr(sys.modules[replicate_small_side.__module__], "LARGER", 0)
            yield

    def _maintain(self) -> bool:
        with pytest.MonkeyPatch.context() as patched, self._timed("maintain"):
            patched.setattr(step, "FEW_CHANGES", self._chance.choice([0, 20_000]))
            try:
                failed = self._db.maintain().failed
            except Exception as error:
                where = "".join(traceback.format_tb(error.__traceback__)[-3:])
                self._fail(None, f"{type(error).__name__} in maintain(): {error}\n{where}"[:3000])
                return False
        for name, why in failed.items():
            self._fail(int(name[1:]), f"stopped: {why}")
        return True

    def _compare(self) -> None:
        with self._timed("compare"):
            named = {
                table.name: self._db.table(table.name).to_arrow() for table in self.case.tables
            }
            self._duck.load(named)
            self.outcome.epochs += 1
            rows = {place: rows_of(self._db.view(f"v{place}").to_arrow()) for place in self._live}
            for place in sorted(self._live):
                wanted = self._duck.rows(self.case.queries[place].sql("duck"))
                if wrong := differences(rows[place], wanted):
                    self._fail(place, "\n".join(wrong[:6]))
            for place in self.case.whole:
                parts = [part for part in range(place + 1, place + 4) if part in self._live]
                if place in self._live and len(parts) == 3:
                    found = [row for part in parts for row in rows[part]]
                    if wrong := differences(found, rows[place]):
                        self._fail(place, "\n".join(["parts differ from the whole:", *wrong[:6]]))

    def _fail(self, place: int | None, what: str) -> None:
        self.outcome.failures.append(Failure(place, self._done, what))
        if place is not None:
            self._live.discard(place)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        seconds = self.outcome.seconds
        seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - begun


def run_case(case: Case, engine: Engine, path: Path) -> Outcome:
    """Where all views failed together, those that fail alone are named."""
    with ev.open(path, create=True) as db:
        db.engines.use(engine)
        outcome = Run(case, db).run()
    if len(case.queries) > 1 and any(one.place is None for one in outcome.failures):
        for place in range(len(case.queries)):
            alone = run_case(only(case, place), engine, path.with_suffix(f".{place}"))
            found = (replace(one, place=place) for one in alone.failures if one.place is None)
            outcome.failures += found
    return outcome


def only(case: Case, place: int) -> Case:
    """One view of a case."""
    return replace(case, queries=case.queries[place : place + 1], later=0, whole=())


def _batched(changes: Sequence[Change], step: int) -> Iterator[Sequence[Change]]:
    for start in range(0, len(changes), step):
        yield changes[start : start + step]


def _reason(error: UnsupportedSql) -> str:
    """What was refused, without the query's own names."""
    text = re.split(r" can't be | is of type |; ", str(error))[0]
    return re.sub(r"\(.*|'.*", "", text)[:60]
