"""Queries as small trees, written as Spark's SQL and as DuckDB's.

Most of the two is the same; an expression has a text of its own for DuckDB where it differs. Trees
are values: a smaller query is made by `dataclasses.replace`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Dialect = Literal["spark", "duck"]
_PLACE = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class Expression:
    """A text with places {0}, {1}, ... for its parts; a part may be a query.

    `type` is the SQL type, or RATIO for what two engines compute with different roundings: that
    may be shown and compared with a tolerance, but not grouped, ordered or joined by.
    """

    type: str
    text: str
    parts: tuple[Expression | Query, ...] = ()
    duck: str | None = None

    def sql(self, dialect: Dialect) -> str:
        text = self.duck if dialect == "duck" and self.duck is not None else self.text
        return _PLACE.sub(lambda place: self.parts[int(place[1])].sql(dialect), text)


@dataclass(frozen=True)
class Named:
    """A table or a common table expression."""

    name: str
    alias: str

    def sql(self, dialect: Dialect) -> str:
        return f"{self.name} AS {self.alias}"


@dataclass(frozen=True)
class Derived:
    """A subquery in FROM."""

    query: Query
    alias: str

    def sql(self, dialect: Dialect) -> str:
        return f"({self.query.sql(dialect)}) AS {self.alias}"


@dataclass(frozen=True)
class Values:
    rows: tuple[tuple[Expression, ...], ...]
    names: tuple[str, ...]
    alias: str

    def sql(self, dialect: Dialect) -> str:
        rows = ", ".join(f"({_listed(row, dialect)})" for row in self.rows)
        return f"(VALUES {rows}) AS {self.alias}({', '.join(self.names)})"


@dataclass(frozen=True)
class Join:
    """`how` as Spark writes it; CROSS has no condition."""

    left: Source
    how: str
    right: Source
    on: Expression | None

    def sql(self, dialect: Dialect) -> str:
        how = self.how.removeprefix("LEFT ") if dialect == "duck" and self._filters else self.how
        on = "" if self.on is None else f" ON {self.on.sql(dialect)}"
        return f"{self.left.sql(dialect)} {how} JOIN {self.right.sql(dialect)}{on}"

    @property
    def _filters(self) -> bool:
        return self.how in ("LEFT SEMI", "LEFT ANTI")


@dataclass(frozen=True)
class Explode:
    """The words of a string, a row for each; with `outer`, a row of NULL where there are none."""

    text: Expression
    alias: str
    name: str
    outer: bool = False

    def sql(self, dialect: Dialect) -> str:
        text = self.text.sql(dialect)
        if dialect == "spark":
            outer = "OUTER " if self.outer else ""
            view = f"explode(split({text}, ',')) {self.alias} AS {self.name}"
            return f"LATERAL VIEW {outer}{view}"
        words = f"LATERAL (SELECT unnest(string_split({text}, ',')) AS {self.name}) AS {self.alias}"
        return f"LEFT JOIN {words} ON TRUE" if self.outer else f"CROSS JOIN {words}"


@dataclass(frozen=True)
class Output:
    value: Expression
    name: str

    def sql(self, dialect: Dialect) -> str:
        return f"{self.value.sql(dialect)} AS {self.name}"


@dataclass(frozen=True)
class Grouping:
    """GROUP BY; `form` is empty, ROLLUP, CUBE or GROUPING SETS, which has `sets` of places."""

    by: tuple[Expression, ...]
    form: str = ""
    sets: tuple[tuple[int, ...], ...] = ()

    def sql(self, dialect: Dialect) -> str:
        if self.form == "GROUPING SETS":
            sets = ([self.by[at] for at in one if at < len(self.by)] for one in self.sets)
            return f"{self.form} ({', '.join(f'({_listed(one, dialect)})' for one in sets)})"
        by = _listed(self.by, dialect)
        return f"{self.form}({by})" if self.form else by


@dataclass(frozen=True)
class Top:
    """The first rows in the order of all outputs, or of `by`, so that there is one answer."""

    limit: int
    offset: int | None
    directions: tuple[str, ...]
    by: Expression | None = None

    def sql(self, names: list[str], dialect: Dialect) -> str:
        ways = self.directions * len(names)
        order = ", ".join(f"{name}{way}" for name, way in zip(names, ways, strict=False))
        if self.by is not None:
            order = self.by.sql(dialect)
        offset = "" if self.offset is None else f" OFFSET {self.offset}"
        return f"ORDER BY {order} LIMIT {self.limit}{offset}"


@dataclass(frozen=True)
class Select:
    outputs: tuple[Output, ...]
    source: Source
    where: Expression | None = None
    grouping: Grouping | None = None
    having: Expression | None = None
    explode: Explode | None = None
    top: Top | None = None
    distinct: bool = False
    ctes: tuple[tuple[str, Query], ...] = ()

    def sql(self, dialect: Dialect) -> str:
        clauses = []
        if self.ctes:
            named = (f"{name} AS ({query.sql(dialect)})" for name, query in self.ctes)
            clauses.append(f"WITH {', '.join(named)}")
        clauses.append(f"SELECT {'DISTINCT ' if self.distinct else ''}")
        clauses[-1] += _listed(self.outputs, dialect)
        clauses.append(f"FROM {self.source.sql(dialect)}")
        if self.explode is not None:
            clauses.append(self.explode.sql(dialect))
        if self.where is not None:
            clauses.append(f"WHERE {self.where.sql(dialect)}")
        if self.grouping is not None:
            clauses.append(f"GROUP BY {self.grouping.sql(dialect)}")
        if having := self._having(dialect):
            clauses.append(f"HAVING {having}")
        if self.top is not None:
            clauses.append(self.top.sql([output.name for output in self.outputs], dialect))
        return " ".join(clauses)

    def _having(self, dialect: Dialect) -> str:
        """Over no rows, Spark has no row for the grouping set (), and DuckDB has one."""
        asked = [] if self.having is None else [self.having.sql(dialect)]
        if dialect == "duck" and self.grouping is not None and self.grouping.form:
            asked.append("count(*) > 0")
        return " AND ".join(asked)


@dataclass(frozen=True)
class SetOperation:
    left: Query
    how: str
    right: Query

    def sql(self, dialect: Dialect) -> str:
        return f"({self.left.sql(dialect)}) {self.how} ({self.right.sql(dialect)})"


@dataclass(frozen=True)
class Written:
    """A query as text; DuckDB's where it differs."""

    spark: str
    duck: str | None = None

    def sql(self, dialect: Dialect) -> str:
        return self.duck if dialect == "duck" and self.duck is not None else self.spark


Source = Named | Derived | Values | Join
Query = Select | SetOperation | Written


def _listed(items: Iterable[Any], dialect: Dialect) -> str:
    return ", ".join(item.sql(dialect) for item in items)
