"""What a view must hold: its query recomputed over the tables by DuckDB or by Spark, compared.

Rows are compared as multisets, values exactly; but a value that one side has as a DOUBLE (DuckDB's
avg and quotient of decimals, and all that is computed of them) may differ from the other by what
rounding to the scale of the view's type explains. Of rows that tie for the last places of an ORDER
BY with LIMIT the view may have any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from everview.engines.engine import start
from tests.rounded import by_exact

Row = tuple[Any, ...]
Run = Callable[[str], pa.Table]

_CLOSE = 1e-9
_SHOWN, _LONGEST = 3, 400


@dataclass(frozen=True)
class Answer:
    """The rows a view must have, and those of which it must have `places` more."""

    rows: list[Row]
    tied: list[Row]
    places: int = 0


@contextmanager
def by_duckdb(tables: Mapping[str, pa.Table]) -> Iterator[Run]:
    """Runs DuckDB's SQL over the tables."""
    with duckdb.connect() as duck:
        duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark
        for name, table in tables.items():
            duck.register("given", table)
            duck.execute(f"CREATE TABLE {name} AS FROM given")
        yield lambda sql: duck.sql(sql).to_arrow_table()


def by_spark(tables: Mapping[str, pa.Table]) -> Run:
    """Runs Spark's SQL over the tables, as frames of its own."""
    return lambda sql: start("spark").select("", sql, {}, tables)


def answer(query: exp.Query, run: Run, dialect: str) -> Answer:
    """The answer to a query; where it has a LIMIT, what is beyond it is asked for too."""
    asked, places, hidden = _without_limit(query)
    found = run(asked.sql(dialect=dialect))
    width = found.num_columns - hidden
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    limit = query.args.get("limit")
    most = int(limit.expression.name) if limit else len(rows)
    if len(rows) <= most:
        return Answer([row[:width] for row in rows], [])

    def order(row: Row) -> Row:
        return tuple(row[place if place >= 0 else len(row) + place] for place in places)

    last = order(rows[most - 1])
    tied = [_same(order(row), last) for row in rows]
    first = tied.index(True)
    return Answer(
        [row[:width] for row in rows[:first]],
        [row[:width] for row, ties in zip(rows, tied, strict=True) if ties],
        most - first,
    )


def _without_limit(query: exp.Query) -> tuple[exp.Query, list[int], int]:
    """The query without its LIMIT; where what it orders by is in its rows, counted from the end
    for columns that are appended; and how many those are."""
    asked = query.copy()
    asked.set("limit", None)
    order = asked.args.get("order")
    if not order or not query.args.get("limit"):
        return asked, [], 0
    names = [column.output_name.lower() for column in query.selects]
    values = [_bare(column.unalias()).sql() for column in query.selects]
    starred = any(column.is_star for column in query.selects)
    places: list[int | exp.Expression] = []
    for ordered in order.expressions:
        by = _bare(ordered.this)
        if isinstance(by, exp.Literal):
            places.append(int(by.name) - 1)
        elif not starred and isinstance(by, exp.Column) and not by.table and by.name in names:
            places.append(names.index(by.name))
        elif not starred and by.sql() in values:
            places.append(values.index(by.sql()))
        else:
            places.append(by)
    hidden = [by for by in places if isinstance(by, exp.Expression)]
    if hidden:
        assert isinstance(asked, exp.Select)
        asked = asked.select(*(exp.alias_(by.copy(), f"by_{n}") for n, by in enumerate(hidden)))
    at = iter(range(-len(hidden), 0))
    return asked, [next(at) if isinstance(by, exp.Expression) else by for by in places], len(hidden)


def _bare(expression: exp.Expression) -> exp.Expression:
    return expression.unnest()


def _same(one: Row, other: Row) -> bool:
    return all(_near(a, b, 0.0) for a, b in zip(one, other, strict=True))


def differences(view: pa.Table, wanted: Answer) -> list[str]:
    """What is wrong with a view's rows, in words; nothing if they are as they should be."""
    all_wanted = wanted.rows + wanted.tied
    found = list(zip(*(column.to_pylist() for column in view.columns), strict=True))
    if all_wanted and len(all_wanted[0]) != view.num_columns:
        return [f"{view.num_columns} columns instead of {len(all_wanted[0])}"]
    rounded = [
        at
        for at in range(view.num_columns)
        if any(isinstance(row[at], float) for row in all_wanted)
        or pa.types.is_floating(view.schema.field(at).type)
    ]
    units = [_unit(view.schema.field(at).type) for at in rounded]
    have, sure, tied = (by_exact(rows, rounded) for rows in (found, wanted.rows, wanted.tied))
    too_much: list[Row] = []
    missing: list[Row] = []
    others = 0
    for key in have.keys() | sure.keys():
        extra, lacking = _unmatched(have[key], sure[key], units)
        of_tied = len(extra)
        extra, _ = _unmatched(extra, tied[key], units) if key in tied else (extra, [])
        others += of_tied - len(extra)
        too_much += [_whole(key, values, rounded) for values in extra]
        missing += [_whole(key, values, rounded) for values in lacking]
    wrong = _told(view.column_names, too_much, missing)
    if not wrong and others != wanted.places:
        wrong.append(f"{len(found)} rows instead of {len(wanted.rows) + wanted.places}")
    return wrong


def _told(names: Sequence[str], too_much: Sequence[Row], missing: Sequence[Row]) -> list[str]:
    """Rows that are alike are told as one with other values."""
    left, told = list(missing), []
    for row in sorted(too_much, key=repr):
        other = max(left, key=lambda other: _alike(row, other), default=None)
        if other is None or 2 * _alike(row, other) < len(row):
            told.append(f"too much: {_shown(row)}")
            continue
        left.remove(other)
        values = zip(names, row, other, strict=True)
        changes = [f"{name} {_shown(a)} instead of {_shown(b)}" for name, a, b in values if a != b]
        told.append(f"{', '.join(changes)} in {_shown(row)}")
    return told + [f"missing: {_shown(row)}" for row in sorted(left, key=repr)]


def _alike(one: Row, other: Row) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return str(value) if isinstance(value, Decimal | date) else repr(value)


def shortened(wrong: Sequence[str]) -> str:
    """The first few differences."""
    shown = [one if len(one) <= _LONGEST else one[: _LONGEST - 1] + "…" for one in wrong[:_SHOWN]]
    more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return "; ".join(shown) + more


def _unit(kind: pa.DataType) -> float:
    """What rounding to the type can make of a difference."""
    return 10.0**-kind.scale if pa.types.is_decimal(kind) else 0.0


def _unmatched(
    found: Sequence[Row], wanted: Sequence[Row], units: Sequence[float]
) -> tuple[list[Row], list[Row]]:
    """Those found and those wanted that have no partner on the other side."""
    left, extra = list(wanted), []
    for row in found:
        fits = (
            at
            for at, other in enumerate(left)
            if all(_near(a, b, unit) for a, b, unit in zip(row, other, units, strict=True))
        )
        at = next(fits, None)
        if at is None:
            extra.append(row)
        else:
            left.pop(at)
    return extra, left


def _near(found: Any, wanted: Any, unit: float) -> bool:
    """Whether `found` may be `wanted`, which is a little inexact, in multiples of `unit`."""
    if not isinstance(found, int | float | Decimal) or not isinstance(
        wanted, int | float | Decimal
    ):
        return bool(found == wanted)
    one, other = float(found), float(wanted)
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= unit / 2 + _CLOSE * abs(other)


def _whole(exact: Row, values: Row, rounded: Sequence[int]) -> Row:
    given, others = iter(values), iter(exact)
    return tuple(next(given if at in rounded else others) for at in range(len(exact) + len(values)))
