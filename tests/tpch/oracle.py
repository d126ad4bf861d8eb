"""What the TPC-H views must hold: DuckDB's recomputation from the tables, and the comparison.

Rows are compared as multisets and by type: all values exactly, but where DuckDB has a DOUBLE for
a DECIMAL of Spark's (avg, division) the view must have it rounded to its scale. Of rows that tie
for the last places of a top-k the view may have any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import duckdb
import pyarrow as pa

import everview as ev
from everview.tpch import KEYS, QUERIES
from tests.rounded import by_exact

Row = tuple[Any, ...]

_TOP = re.compile(r"(.*)\nORDER BY (.*)\nLIMIT (\d+)\s*", re.DOTALL)
_KINDS = {int: pa.types.is_integer, str: pa.types.is_string, date: pa.types.is_date}


@dataclass(frozen=True)
class Answer:
    """The rows a view must have, and for a top-k those of which it must have `places` more."""

    names: list[str]
    rows: list[Row]
    tied: list[Row]
    places: int = 0


def recompute(
    tables: Mapping[str, pa.Table], queries: Iterable[str] = QUERIES
) -> dict[str, Answer]:
    """The answers to the named queries, by DuckDB."""
    with duckdb.connect() as duck:
        duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark
        for name, table in tables.items():
            duck.register("given", table)
            duck.execute(f"CREATE TABLE {name} AS FROM given")
        return {name: _answer(duck, QUERIES[name]) for name in queries}


def _answer(duck: duckdb.DuckDBPyConnection, query: str) -> Answer:
    top = _TOP.fullmatch(query)
    if top is None:
        names, rows = _fetch(duck, query)
        return Answer(names, rows, [])
    body, order, limit = top[1], top[2], int(top[3])
    ranked = f"SELECT *, rank() OVER (ORDER BY {order}) AS place FROM ({body}) ORDER BY place"
    names, rows = _fetch(duck, ranked)
    last = rows[limit - 1][-1] if len(rows) > limit else len(rows) + 1
    sure = [row[:-1] for row in rows if row[-1] < last]
    tied = [row[:-1] for row in rows if row[-1] == last]
    return Answer(names[:-1], sure, tied, limit - len(sure) if tied else 0)


def _fetch(duck: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], list[Row]]:
    result = duck.execute(query)
    return [column[0] for column in result.description], result.fetchall()


def differences(view: pa.Table, answer: Answer) -> list[str]:
    """What is wrong with a view's rows, in words; nothing if they are as they should be."""
    if view.column_names != answer.names:
        return [f"columns {view.column_names} instead of {answer.names}"]
    if wrong := _wrong_types(view.schema, answer.rows + answer.tied):
        return wrong
    found = list(zip(*(column.to_pylist() for column in view.columns), strict=True))
    if not answer.tied:
        return _differing(view.schema, found, answer.rows)
    missing = Counter(answer.rows) - Counter(found)
    others = Counter(found) - Counter(answer.rows)
    wrong = [f"missing {row}" for row in missing.elements()]
    wrong += [f"too much {row}" for row in (others - Counter(answer.tied)).elements()]
    if others.total() != answer.places:
        wrong.append(f"{len(found)} rows instead of {len(answer.rows) + answer.places}")
    return wrong


def _wrong_types(schema: pa.Schema, rows: Sequence[Row]) -> list[str]:
    """Columns whose values are of another kind than DuckDB's."""
    wrong = []
    for at, field in enumerate(schema):
        kinds = {type(row[at]) for row in rows} - {type(None)}
        for kind in kinds:
            fits = _KINDS.get(kind, pa.types.is_decimal)
            if not fits(field.type):
                wrong.append(f"{field.name} is {field.type}, but DuckDB has {kind.__name__}")
    return wrong


def _differing(schema: pa.Schema, found: Sequence[Row], wanted: Sequence[Row]) -> list[str]:
    """Rows are told apart by their exact columns; the rounded ones are compared in order."""
    rounded = [i for i in range(len(schema)) if any(isinstance(row[i], float) for row in wanted)]
    units = [10.0 ** -schema.field(i).type.scale for i in rounded]
    have, want = by_exact(found, rounded), by_exact(wanted, rounded)
    wrong = []
    for key in have.keys() | want.keys():
        here, there = have[key], want[key]
        if len(here) != len(there):
            wrong.append(f"{len(here)} times instead of {len(there)}: {key} {here or there}")
        elif not all(_near(one, other, units) for one, other in zip(here, there, strict=True)):
            wrong.append(f"{here} instead of {there}: {key}")
    return wrong


def _near(found: Row, wanted: Row, units: Sequence[float]) -> bool:
    """Whether `found` is `wanted`, which is a little inexact, rounded to multiples of `units`."""
    return all(
        one is other
        if one is None or other is None
        else abs(float(one) - other) <= unit / 2 + 1e-9 * abs(other)
        for one, other, unit in zip(found, wanted, units, strict=True)
    )


def tables_of(db: ev.Database) -> dict[str, pa.Table]:
    return {name: db.table(name).to_arrow() for name in KEYS}


def check(db: ev.Database, names: Iterable[str] = QUERIES, when: str = "") -> None:
    """Fail unless every view equals its recomputation from the tables."""
    wrong = []
    for name, answer in recompute(tables_of(db), names).items():
        for difference in differences(db.view(name).to_arrow(), answer)[:5]:
            wrong.append(f"{name}: {difference}")
    assert not wrong, f"{when}\n" + "\n".join(wrong)
