"""What queries ask for: values that make rows pass their filters and meet in their joins.

Few random rows pass the filters of a TPC-DS query, and a view without rows proves little. So the
comparisons of columns with constants are read off the queries: a wish is one way to pass those of
one SELECT, with one branch of every OR, and says which columns of its tables are to be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

_COMPARED = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_FLIPPED = {exp.EQ: exp.EQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}


Place = tuple[str, str]  # an alias and a column


@dataclass
class Part:
    """What one table of a SELECT is to have: values by column, and the conditions they are for."""

    table: str
    values: dict[str, Any] = field(default_factory=dict)
    conditions: list[str] = field(default_factory=list)


@dataclass
class Wish:
    """The parts of a SELECT's tables by alias; columns that are to be `equal` are in one set."""

    parts: dict[str, Part]
    equal: list[set[Place]] = field(default_factory=list)

    def equal_to(self, place: Place) -> set[Place]:
        """The columns that are to have the value of this one, itself among them."""
        return next((places for places in self.equal if place in places), {place})

    def equate(self, one: Place, other: Place) -> None:
        merged = self.equal_to(one) | self.equal_to(other)
        self.equal = [places for places in self.equal if not places & merged] + [merged]


class Wishes:
    """Draws wishes from the SELECTs of queries over tables with these schemas."""

    def __init__(
        self,
        queries: Iterable[exp.Query],
        schemas: Mapping[str, pa.Schema],
        chance: np.random.Generator,
    ) -> None:
        self._schemas, self._chance = schemas, chance
        self._selects: dict[str, list[exp.Select]] = {name: [] for name in schemas}
        for query in queries:
            for select in query.find_all(exp.Select):
                for table in sorted({*self._aliases(select).values()}):
                    self._selects[table].append(select)

    def draw(self, table: str) -> Wish | None:
        """A wish of a SELECT that reads the table, if there is one."""
        selects = self._selects[table]
        if not selects:
            return None
        select = selects[self._chance.integers(len(selects))]
        wish = Wish({alias: Part(name) for alias, name in self._aliases(select).items()})
        on = [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
        where = select.args.get("where")
        for condition in self._chosen([*on, *([where.this] if where else [])]):
            self._note(wish, condition)
        return wish

    def _aliases(self, select: exp.Select) -> dict[str, str]:
        """The stored tables of a SELECT by alias."""
        sources = [select.args.get("from_"), *(select.args.get("joins") or [])]
        tables = [source.this for source in sources if source is not None]
        return {
            table.alias_or_name.lower(): table.name.lower()
            for table in tables
            if isinstance(table, exp.Table) and table.name.lower() in self._schemas
        }

    def _chosen(self, conditions: Iterable[exp.Expression]) -> Iterator[exp.Expression]:
        """The comparisons below AND, and below one branch of every OR."""
        for condition in conditions:
            bare = condition.unnest()
            if isinstance(bare, exp.And):
                yield from self._chosen([bare.left, bare.right])
            elif isinstance(bare, exp.Or):
                branches = list(bare.flatten())
                yield from self._chosen([branches[self._chance.integers(len(branches))]])
            else:
                yield bare

    def _note(self, wish: Wish, condition: exp.Expression) -> None:
        left = condition.this.unnest() if isinstance(condition.this, exp.Expression) else None
        right = condition.args.get("expression")
        if isinstance(condition, exp.EQ) and right is not None:
            ends = [self._column(wish, end) for end in (left, right.unnest())]
            if ends[0] and ends[1]:
                wish.equate(ends[0], ends[1])
                return
        found = self._value(wish, condition, left, right)
        if found is not None:
            (alias, name), value = found
            part = wish.parts[alias]
            part.values[name] = value
            plain = condition.copy()
            for column in plain.find_all(exp.Column):
                column.set("table", None)
            part.conditions.append(plain.sql(dialect="duckdb"))

    def _value(
        self, wish: Wish, condition: exp.Expression, left: Any, right: Any
    ) -> tuple[Place, Any] | None:
        """A column and a value of it with which the condition holds."""
        kind: Any = type(condition)
        if kind in _COMPARED and not self._column(wish, left):
            left, right, kind = right.unnest(), left, _FLIPPED[kind]
        place = self._column(wish, left)
        if place is None:
            return None
        given: list[Any]
        if kind in _COMPARED:
            given = [right]
        elif kind is exp.Between:
            given = [condition.args["low"], condition.args["high"]]
        elif kind is exp.In and condition.expressions:
            given = condition.expressions
        else:
            return None
        if any(one.find(exp.Column, exp.Select) for one in given):
            return None
        values = [_constant(one.sql(dialect="duckdb")) for one in given]
        if kind in (exp.Between, exp.In):
            value = values[self._chance.integers(len(values))]
        else:
            value = _stepped(values[0], {exp.LT: -1, exp.GT: 1}.get(kind, 0))
        wanted = self._schemas[wish.parts[place[0]].table].field(place[1]).type
        value = _fitting(value, wanted)
        return None if value is None else (place, value)

    def _column(self, wish: Wish, expression: Any) -> Place | None:
        """Alias and name, if the expression is a column of one of the wish's tables."""
        if not isinstance(expression, exp.Column):
            return None
        name, alias = expression.name.lower(), expression.table.lower()
        having = [
            other
            for other, part in wish.parts.items()
            if name in self._schemas[part.table].names and alias in ("", other)
        ]
        return (having[0], name) if len(having) == 1 else None


@lru_cache(10_000)
def _constant(sql: str) -> Any:
    try:
        found = duckdb.execute(f"SELECT {sql}").fetchone()
    except duckdb.Error:
        return None
    return found[0] if found else None


def _stepped(value: Any, step: int) -> Any:
    if isinstance(value, date):
        return value + timedelta(days=step)
    return value + step if isinstance(value, int | float | Decimal) else value


def _fitting(value: Any, wanted: pa.DataType) -> Any:
    """The value as one of the column's type, None if it can't be one."""
    if isinstance(value, datetime):
        value = value.date()
    converted: dict[Callable[[pa.DataType], bool], Callable[[Any], Any]] = {
        pa.types.is_date: lambda v: v if isinstance(v, date) else date.fromisoformat(v),
        pa.types.is_integer: int,
        pa.types.is_decimal: lambda v: round(Decimal(v), wanted.scale),
        pa.types.is_string: str,
    }
    try:
        return next(
            pa.scalar(convert(value), wanted).as_py()
            for fits, convert in converted.items()
            if fits(wanted)
        )
    except (TypeError, ValueError, ArithmeticError, StopIteration, pa.ArrowException):
        return None
