"""Which row a view failed on, when one of its expressions failed inside the engine.

Engines name the value at best. The diagnosis takes the rows that went into each run of expressions,
which are changes of a table or the output of an operator, and tries halves of them until one row is
left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from everview.plan.jobs import MOST_TOGETHER, size_in_one_job
from everview.plan.nodes import Aggregate, Filter, Node, Project, Source
from everview.programs.computed import PLACED, WEIGHTED
from everview.programs.program import Program
from everview.programs.step import Step
from everview.programs.workers import PLACE
from everview.schema import Column
from everview.spark.types import struct

MOST_ROWS = 500_000
_LONGEST = 40


def failing_row(
    session: SparkSession,
    plan: Node,
    step: Step,
    states: Mapping[str, str],
    keys: Mapping[str, tuple[Column, ...]],
) -> str | None:
    """The row as text; None if no expression fails. `keys` has the key columns of each table."""
    for top in _tops(plan):
        base = _base(top)
        if size_in_one_job(base) > MOST_TOGETHER:
            return None
        if isinstance(base, Source):
            base, top = _with_key(base, top, keys[base.table])
        try:
            frame = Program(session, step, states).frame(base)
            rows = None if frame is None else _rows(frame)
        except Exception:
            return None  # the failure is below
        if rows is None or not rows.num_rows or not _fails(session, top, base, rows, step):
            continue
        if _fails(session, top, base, rows.slice(0, 0), step):
            return None  # it fails without rows too: the engine lacks something
        while rows.num_rows > 1:
            half = rows.slice(0, rows.num_rows // 2)
            failed = _fails(session, top, base, half, step)
            rows = half if failed else rows.slice(half.num_rows)
        return _text(base, rows)
    return None


def _tops(plan: Node) -> list[Node]:
    """The top node of each run of expressions, from the sources up."""
    runs = [node for node in plan.walk() if isinstance(node, Filter | Project)]
    inside = {node.input for node in runs}
    return [node for node in runs if node not in inside]


def _base(node: Node) -> Node:
    return _base(node.input) if isinstance(node, Filter | Project) else node


def _with_key(source: Source, top: Node, key: tuple[Column, ...]) -> tuple[Source, Node]:
    """The source with its table's key, and the expressions above it."""
    added = [column for column in key if column.name not in (*source.read, *source.names())]
    wider = replace(
        source,
        columns=(*source.columns, *added),
        read=(*source.read, *(column.name for column in added)),
    )
    return wider, _above(top, source, wider)


def _above(node: Node, old: Node, new: Node) -> Node:
    if node is old:
        return new
    assert isinstance(node, Filter | Project)
    columns = new.columns if isinstance(node, Filter) and node.input is old else node.columns
    return replace(node, columns=columns, input=_above(node.input, old, new))


def _rows(frame: DataFrame) -> pa.Table | None:
    rows = frame.limit(MOST_ROWS + 1).toArrow()
    return rows if rows.num_rows <= MOST_ROWS else None


def _fails(session: SparkSession, top: Node, base: Node, rows: pa.Table, step: Step) -> bool:
    columns = (*base.columns, WEIGHTED, *([PLACED] if PLACE in rows.column_names else []))
    rows = rows.select([column.name for column in columns])
    program = Program(session, step, {})
    program.put(base, session.createDataFrame(rows, struct(columns)))
    try:
        frame = program.frame(top)
        if frame is not None:
            frame.toArrow()
    except Exception:  # each engine has its own
        return True
    return False


def _text(base: Node, rows: pa.Table) -> str:
    (row,) = rows.select(base.names()).to_pylist()
    names: tuple[str, ...] = tuple(row)
    if isinstance(base, Source):
        names = base.read
    elif isinstance(base, Aggregate):
        names = (*base.groups, *map(str, base.calls))
    values = zip(names, map(_short, row.values()), strict=True)
    where = base.table if isinstance(base, Source) else base.label()
    return f"the row {', '.join(f'{name} = {value}' for name, value in values)} of {where}"


def _short(value: object) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
