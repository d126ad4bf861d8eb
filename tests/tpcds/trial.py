"""Queries tried as views of one database: accepted or not, and exact under random changes or not.

After loading and after every epoch each view is held against DuckDB's recomputation over the same
tables, and where DuckDB can't run the query or finds a difference, against Spark's.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

import everview as ev
from everview.errors import EverviewError
from everview.tpch.changes import apply
from tests.tpcds import tables
from tests.tpcds.changes import Changes, Referring
from tests.tpcds.oracle import Row, Run, answer, by_duckdb, by_spark, differences, shortened
from tests.tpcds.queries import Query

INCREMENTAL, BY_GROUP, REFUSED, FAILED = "incremental", "by touched group", "refused", "failed"
Tell = Callable[[str], None]


@dataclass
class Outcome:
    """What became of a query. `failed` are views that were accepted and then stopped."""

    query: str
    verdict: str
    reason: str = ""
    rounds: int = 0
    state_rows: int = 0
    rows: int = 0  # the most it had
    changed: int = 0  # epochs that changed it
    views_together: int = 0
    load_seconds: float = 0.0
    epoch_seconds: float = 0.0
    checks: int = 0
    oracle: str = "duckdb"
    wrong: list[str] = field(default_factory=list)

    @property
    def maintained(self) -> bool:
        return self.verdict in (INCREMENTAL, BY_GROUP)

    @property
    def exact(self) -> bool:
        return self.maintained and self.checks > 0 and not self.wrong

    def fail(self, reason: str) -> None:
        self.verdict, self.reason = FAILED, reason


def create(db: ev.Database, query: Query) -> Outcome:
    """The query as a view of the database, if it can be one."""
    try:
        db.sql(f"CREATE MATERIALIZED VIEW {query.name} AS {query.as_view}")
    except EverviewError as error:
        return Outcome(query.name, REFUSED, str(error))
    except Exception as error:
        return Outcome(query.name, FAILED, f"CREATE: {type(error).__name__}: {error}")
    document = db.explain(query.name, json=True)
    ways = {str(document["maintained"]), *(node["maintained"] for node in _nodes(document["plan"]))}
    others = sorted(ways - {INCREMENTAL})
    by_group = any(BY_GROUP in way for way in ways)
    return Outcome(
        query.name,
        BY_GROUP if by_group else INCREMENTAL,
        reason="; ".join(others),
        rounds=document["rounds"],
    )


def _nodes(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield node
    for below in node["inputs"]:
        yield from _nodes(below)


class Trial:
    """Views that were created in one database, loaded and changed."""

    def __init__(
        self,
        db: ev.Database,
        queries: Iterable[Query],
        outcomes: Iterable[Outcome],
        *,
        seed: int = 1,
        tell: Tell = lambda line: None,
    ) -> None:
        self._db, self._tell = db, tell
        self._outcomes = {outcome.query: outcome for outcome in outcomes if outcome.maintained}
        self._queries = {query.name: query for query in queries if query.name in self._outcomes}
        read = {name for query in self._queries.values() for name in query.tables}
        self._tables = [name for name in tables.KEYS if name in read]
        self._before: dict[str, Counter[Row]] = {}
        self._changes = Changes(
            self._contents(),
            tables.KEYS,
            Referring(tables.referred, tables.RETURNS, tables.CALENDARS),
            [query.parsed for query in self._queries.values()],
            seed,
        )

    def run(self, epochs: int, size: int) -> None:
        """Load and check, then change and check; outcomes have what was found."""
        loading = self._maintain()
        self._check("loaded")
        times = []
        for number in range(1, epochs + 1):
            for _ in range(2):  # so that some keys change twice
                apply(self._db, self._changes.batch(size // 2))
            times.append(self._maintain())
            self._check(f"epoch {number}")
            self._tell(f"epoch {number}: {times[-1]:.1f} s")
        for outcome in self._live():
            outcome.state_rows = self._db.explain(outcome.query, json=True)["state"]["rows"]
            outcome.views_together = len(self._outcomes)
            outcome.load_seconds = loading
            outcome.epoch_seconds = statistics.median(times) if times else 0.0

    def _live(self) -> list[Outcome]:
        return [outcome for outcome in self._outcomes.values() if outcome.maintained]

    def _contents(self) -> dict[str, pa.Table]:
        return {name: self._db.table(name).to_arrow() for name in self._tables}

    def _maintain(self) -> float:
        begun = time.perf_counter()
        failed = self._db.maintain().failed
        seconds = time.perf_counter() - begun
        for name, reason in failed.items():
            self._outcomes[name].fail(f"{self._of_spark(name)}: {reason}")
            self._tell(f"{name} failed: {self._outcomes[name].reason}")
        return seconds

    def _of_spark(self, name: str) -> str:
        """Whether Spark fails over the same tables too."""
        try:
            answer(self._queries[name].parsed, by_spark(self._contents()), "spark")
        except EverviewError:
            return "as does Spark"
        return "unlike Spark"

    def _check(self, when: str) -> None:
        contents = self._contents()
        spark = by_spark(contents)
        with by_duckdb(contents) as duck:
            for outcome in self._live():
                view = self._db.view(outcome.query).to_arrow()
                self._count(outcome, view)
                if wrong := self._differences(outcome, view, duck, "duckdb"):
                    self._tell(f"{outcome.query}, {when}: by DuckDB {shortened(wrong)}")
                    outcome.oracle = "spark"
                    wrong = self._differences(outcome, view, spark, "spark")
                if wrong:
                    self._tell(f"{outcome.query}, {when}: WRONG: {shortened(wrong)}")
                    outcome.wrong.append(f"{when}: {shortened(wrong)}")

    def _count(self, outcome: Outcome, view: pa.Table) -> None:
        rows = Counter(zip(*(column.to_pylist() for column in view.columns), strict=True))
        outcome.checks += 1
        outcome.rows = max(outcome.rows, view.num_rows)
        outcome.changed += rows != self._before.get(outcome.query, rows)
        self._before[outcome.query] = rows

    def _differences(self, outcome: Outcome, view: pa.Table, run: Run, dialect: str) -> list[str]:
        try:
            return differences(view, answer(self._queries[outcome.query].parsed, run, dialect))
        except (duckdb.Error, EverviewError) as error:
            return [f"{dialect} can't run it: {str(error).splitlines()[0]}"]
