"""Calls held against each other on both engines, each asked as a view would ask it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from everview.engines.engine import Engine
from everview.errors import EverviewError, UnsupportedSql
from everview.plan.expressions import Ref, Tree, column_of
from everview.plan.nodes import Node, Project
from everview.programs.dialect import sql_for
from everview.schema import Column
from everview.spark.types import struct
from everview.sql.catalyst.front import translate
from tests.breadth.functions import Call
from tests.breadth.hurting import ROWS, table

EQUAL, REFUSED, LACKING = "equal", "refused on Sail", "not on Sail"
STOPS, DIFFERS, NO_VIEW = "Sail stops where Spark does not", "differs", "no view"
_TOGETHER = 12
_FAILED = "failed"
_FAILURES = (
    *(PySparkException, Py4JJavaError, pa.ArrowException, ValueError, TypeError, OverflowError),
)
_TRIED_ROWS = 4
_CLOSE = 1e-13  # doubles may differ in their last digits
Asked = tuple[str, list[int]]  # a text, and the rows that it is asked of


@dataclass(frozen=True)
class Verdict:
    call: Call
    verdict: str
    detail: str = ""


class Comparison:
    """Both engines with the rows that hurt. Spark interprets: to compile would take longer."""

    def __init__(self, spark: Engine, sail: Engine) -> None:
        self._rows = table()
        self._columns = tuple(Column(field.name, field.type) for field in self._rows.schema)
        self._planner = spark.session
        self.spark = spark.session.newSession()
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.spark.conf.set("spark.sql.codegen.wholeStage", "false")
        self.spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        # or rows that are known when it plans would all be computed then, and fail together
        rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
        self.spark.conf.set("spark.sql.optimizer.excludedRules", rule)
        self._sail = sail.session
        self._frames = {
            session: session.createDataFrame(self._rows, struct(self._columns))
            for session in (self.spark, self._sail)
        }
        self._frames[self.spark].createOrReplaceTempView("t")
        inside: Any = self.spark.table("t").orderBy("rid")._jdf
        self._inside = list(inside.queryExecution().executedPlan().executeCollect())
        self._lacking: set[str] = set()
        self._answered_rows: dict[Call, list[int]] = {}

    def verdicts(self, calls: Iterator[Call]) -> Iterator[Verdict]:
        """A verdict for every call that Spark answers."""
        valid = (call for call in calls if self._is_valid(call))
        while some := list(islice(valid, _TOGETHER)):
            planned = dict(self._planned(some))
            for call, why in planned.items():
                if isinstance(why, str):
                    yield Verdict(call, NO_VIEW, why)
            kept = {call: tree for call, tree in planned.items() if isinstance(tree, Tree)}
            yield from self._compared(kept)

    def _is_valid(self, call: Call) -> bool:
        try:
            self.spark.sql(f"SELECT {call.text} AS c FROM t").schema  # noqa: B018
        except (PySparkException, Py4JJavaError):
            return False
        return True

    def _answered(self, call: Call) -> list[int]:
        """The rows for which Spark has an answer: asked one by one, inside of it."""
        jvm: Any = self.spark._jvm
        catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        plan: Any = self.spark.sql(f"SELECT {call.text} AS c FROM t")._jdf
        try:
            project = plan.queryExecution().optimizedPlan()
        except _FAILURES:
            return []
        if project.nodeName() != "Project":  # no more than a column
            return list(range(ROWS))
        expression = project.projectList().head()
        bound = catalyst.BindReferences.bindReference(
            expression, getattr(catalyst, "package$AttributeSeq")(project.child().output()), False
        )
        found = []
        for number, row in enumerate(self._inside):
            try:
                bound.eval(row)
            except _FAILURES:
                continue
            found.append(number)
        return found

    def _planned(self, calls: list[Call]) -> Iterator[tuple[Call, str | Tree]]:
        """The expression in a plan for each call; or why there is none."""
        shown = ", ".join(f"{call.text} AS c{i}" for i, call in enumerate(calls))
        try:
            made = translate(self._planner, f"SELECT rid, {shown} FROM t", {"t": self._columns})
        except EverviewError as error:
            if len(calls) == 1:
                yield calls[0], str(error)
                return
            half = len(calls) // 2
            yield from self._planned(calls[:half])
            yield from self._planned(calls[half:])
            return
        for i, call in enumerate(calls):
            yield call, _tree(made.plan, f"c{i}")

    def _compared(self, trees: dict[Call, Tree]) -> Iterator[Verdict]:
        asked_of_sail = {}
        for call, tree in trees.items():
            try:
                asked_of_sail[call] = sql_for(self._sail, tree)
            except UnsupportedSql as error:
                yield Verdict(call, REFUSED, str(error))
        answered = {call: self._answered(call) for call in asked_of_sail}
        self._answered_rows = answered
        mine = [(call.text, answered[call]) for call in asked_of_sail]
        theirs = [(text, answered[call]) for call, text in asked_of_sail.items()]
        wanted, found = self._values(self.spark, mine), self._values(self._sail, theirs)
        for (call, text), one, other in zip(asked_of_sail.items(), wanted, found, strict=True):
            if self._is_lacking(text):
                yield Verdict(call, LACKING)
            else:
                verdict = self._verdict(call, answered[call], one, other)
                yield verdict if verdict.verdict == DIFFERS else self._failing(call, text, verdict)

    def _is_lacking(self, text: str) -> bool:
        return text in self._lacking

    def _verdict(self, call: Call, rows: list[int], wanted: list[Any], found: list[Any]) -> Verdict:
        pairs = [
            pair for pair in zip(rows, wanted, found, strict=True) if not _same(pair[1], pair[2])
        ]
        wrong = [pair for pair in pairs if pair[2] != _FAILED]
        if wrong:
            return Verdict(call, DIFFERS, self._shown(call, *wrong[0]))
        return Verdict(call, STOPS, self._shown(call, *pairs[0])) if pairs else Verdict(call, EQUAL)

    def _failing(self, call: Call, text: str, verdict: Verdict) -> Verdict:
        """Whether Sail stops where Spark does; asked of some of the rows."""
        answered = set(self._answered_rows[call])
        others = [row for row in range(ROWS) if row not in answered]
        for row in others[:: max(1, len(others) // _TRIED_ROWS)]:
            found = self._tried(self._sail, [(text, [row])], row)
            if found is not None:
                return Verdict(call, DIFFERS, self._shown(call, row, _FAILED, found[0][0]))
        return verdict

    def _shown(self, call: Call, row: int, wanted: Any, found: Any) -> str:
        used = [name for name in self._rows.column_names if name in call.text]
        given = ", ".join(f"{name} = {self._rows[name][row].as_py()!r:.60}" for name in used)
        return f"{given}: Spark {wanted!r:.80}, Sail {found!r:.80}"

    def _values(self, session: SparkSession, asked_for: list[Asked]) -> list[list[Any]]:
        """The values of each text for its rows; where it fails, that."""
        if not asked_for:
            return []
        if (found := self._tried(session, asked_for)) is not None:
            return found
        half = len(asked_for) // 2
        if half:
            parts = asked_for[:half], asked_for[half:]
            return [values for part in parts for values in self._values(session, part)]
        text, rows = asked_for[0]
        if self._tried(session, [(text, [])], -1) is None:
            self._lacking.add(text)
            return [[_FAILED] * len(rows)]
        if len(rows) == 1:
            return [[_FAILED]]
        middle = len(rows) // 2
        parts = [(text, rows[:middle])], [(text, rows[middle:])]
        return [[one for part in parts for one in self._values(session, part)[0]]]

    def _tried(
        self, session: SparkSession, asked_for: list[Asked], row: int | None = None
    ) -> list[list[Any]] | None:
        """The values of texts, each for its rows; of one row, that alone is read."""
        frame = self._frames[session]
        if row is not None:
            frame = frame.where(f"rid = {row}")
        shown = [
            f"CASE WHEN rid IN ({', '.join(map(str, [-1, *rows]))}) THEN {text} END AS c{i}"
            for i, (text, rows) in enumerate(asked_for)
        ]
        try:
            found = frame.selectExpr("rid", *shown).toArrow()
            places = {number: place for place, number in enumerate(found["rid"].to_pylist())}
            columns = [_plain(found[f"c{i}"]) for i in range(len(asked_for))]
        except _FAILURES:
            return None
        return [
            [column[places[number]] for number in rows if number in places]
            for column, (_, rows) in zip(columns, asked_for, strict=True)
        ]


def _tree(plan: Node, name: str) -> Tree:
    """What computes a column of a plan without operators."""
    tree: Tree = Ref(name)
    for node in reversed(list(plan.walk())):
        if isinstance(node, Project) and column_of(tree) in node.names():
            tree = node.expressions[node.names().index(str(column_of(tree)))]
    return tree


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Values; moments as numbers, as Python does not have all of them."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    return list(column.to_pylist())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        signs = math.copysign(1, one) == math.copysign(1, other)
        return signs and (one == other or math.isclose(one, other, rel_tol=_CLOSE))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one == other
    return type(one) is type(other) and bool(one == other)
