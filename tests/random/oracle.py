"""What a view must hold: DuckDB's recomputation from the tables, compared as a multiset.

Values are equal if they are the same number, text or moment; doubles and what DuckDB has as a
double (an average of decimals) may differ by a rounding.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from tests.rounded import by_exact

Row = tuple[Any, ...]
_ROUNDING = 1e-6


class Duck:
    """A DuckDB with copies of the tables."""

    def __init__(self) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")
        order = "nulls_first_on_asc_last_on_desc"  # as Spark
        self._connection.execute(f"SET default_null_order = '{order}'")

    def load(self, tables: Mapping[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._connection.register("given", _without_zones(table))
            self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM given")

    def rows(self, query: str) -> list[Row]:
        """Raises `duckdb.Error` for what is no query."""
        return self._connection.execute(query).fetchall()

    def close(self) -> None:
        self._connection.close()


def rows_of(view: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in view.columns), strict=True))


def differences(found: Iterable[Row], wanted: Iterable[Row]) -> list[str]:
    """What is wrong, in words; nothing if the rows are as they should be."""
    have, want = list(map(_plain, found)), list(map(_plain, wanted))
    missing, extra = Counter(want) - Counter(have), Counter(have) - Counter(want)
    if not missing and not extra:
        return []
    rounded = _rounded([*missing, *extra])
    here, there = by_exact(extra.elements(), rounded), by_exact(missing.elements(), rounded)
    wrong = []
    for key in here.keys() | there.keys():
        pairs = here[key], there[key]
        if len(pairs[0]) == len(pairs[1]) and all(map(_near, *pairs)):
            continue
        wrong += [f"unexpected {row}" for row in _whole(key, pairs[0], rounded)]
        wrong += [f"missing {row}" for row in _whole(key, pairs[1], rounded)]
    return wrong


def _without_zones(table: pa.Table) -> pa.Table:
    """DuckDB needs an extension for time zones; all timestamps here are in UTC."""
    fields = [
        field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def _plain(row: Row) -> Row:
    return tuple(map(_value, row))


def _value(value: Any) -> Any:
    """With its kind, as True equals 1 in Python; numbers are one kind."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, dt.datetime):
        return str(value.replace(tzinfo=None))
    if isinstance(value, dt.date):
        return f"{value} "
    return value


def _rounded(rows: Sequence[Row]) -> list[int]:
    width = len(rows[0])
    return [at for at in range(width) if any(isinstance(row[at], float) for row in rows)]


def _whole(key: Row, rows: list[Row], rounded: list[int]) -> list[Row]:
    found = []
    for row in rows:
        values, others = dict(zip(rounded, row, strict=True)), iter(key)
        width = len(key) + len(rounded)
        found.append(tuple(values[at] if at in values else next(others) for at in range(width)))
    return found


def _near(one: Row, other: Row) -> bool:
    return all(map(_same, one, other))


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return abs(float(one) - float(other)) <= _ROUNDING * max(1.0, abs(float(Decimal(other))))
