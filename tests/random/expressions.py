"""Random expressions over the columns of a scope, of a wanted type, and random conditions.

Left out is what engines answer differently by design: what overflows, casts that round, numbers
and times as text, NULLs in concat().
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .tables import value
from .tree import Expression

NUMBERS = ("BIGINT", "DECIMAL", "DOUBLE")
EXACT = (*NUMBERS, "STRING", "DATE", "BOOLEAN", "TIMESTAMP")
_PATTERNS = ("%a%", "a%", "%b", "_", "%,%", "%é%", "", "a_b%")
# texts with parts of the given types
_SHAPES: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "BIGINT": [
        ("({0} + {1})", ("BIGINT", "BIGINT")),
        ("({0} - {1})", ("BIGINT", "BIGINT")),
        ("({0} * -2)", ("BIGINT",)),
        ("({0} % 3)", ("BIGINT",)),
        ("({0} div 2)", ("BIGINT",)),
        ("abs({0})", ("BIGINT",)),
        ("(- {0})", ("BIGINT",)),
        ("length({0})", ("STRING",)),
        ("year({0})", ("DATE",)),
        ("month({0})", ("TIMESTAMP",)),
        ("datediff({0}, {1})", ("DATE", "DATE")),
        ("CAST({0} AS INT)", ("BOOLEAN",)),
    ],
    "DECIMAL": [
        ("({0} + {1})", ("DECIMAL", "DECIMAL")),
        ("({0} - {1})", ("DECIMAL", "BIGINT")),
        ("({0} * 3)", ("DECIMAL",)),
        ("(- {0})", ("DECIMAL",)),
        ("CAST({0} AS DECIMAL(14,2))", ("BIGINT",)),
    ],
    "DOUBLE": [
        ("({0} + {1})", ("DOUBLE", "DOUBLE")),
        ("({0} * {1})", ("DOUBLE", "BIGINT")),
        ("({0} / 4)", ("DOUBLE",)),
        ("(CAST({0} AS DOUBLE) / 2)", ("BIGINT",)),
    ],
    "STRING": [
        ("({0} || {1})", ("STRING", "STRING")),
        ("upper({0})", ("STRING",)),
        ("substring({0}, 1, 2)", ("STRING",)),
        ("trim({0})", ("STRING",)),
        ("CAST({0} AS STRING)", ("BIGINT",)),
        ("CAST({0} AS STRING)", ("DATE",)),
        ("CAST({0} AS STRING)", ("BOOLEAN",)),
    ],
    "DATE": [("date_add({0}, 1)", ("DATE",)), ("CAST({0} AS DATE)", ("TIMESTAMP",))],
    "TIMESTAMP": [
        ("date_trunc('DAY', {0})", ("TIMESTAMP",)),
        ("CAST({0} AS TIMESTAMP)", ("DATE",)),
    ],
    "BOOLEAN": [],
}
_ANY_TYPE = ("coalesce({0}, {1})", "nullif({0}, {1})", "greatest({0}, {1})", "least({0}, {1})")
_DUCK = {
    "({0} div 2)": "({0} // 2)",
    "datediff({0}, {1})": "({0} - {1})",
    "date_add({0}, 1)": "({0} + 1)",
    "count_if({0})": "count(CASE WHEN {0} THEN 1 END)",
    "({0} <=> {1})": "({0} IS NOT DISTINCT FROM {1})",
}
_COMPARISONS = ("=", "<>", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True)
class Column:
    """A column that can be named where the scope is, as in a0.c1."""

    value: Expression
    nullable: bool = True

    @property
    def type(self) -> str:
        return self.value.type


@dataclass(frozen=True)
class Scope:
    """What can be named; `unique` are columns in which no two rows are equal, if that is known."""

    columns: tuple[Column, ...]
    unique: tuple[Expression, ...] | None = None

    def of(self, kind: str) -> list[Expression]:
        return [column.value for column in self.columns if column.type == kind]

    def exact(self) -> list[Expression]:
        return [column.value for column in self.columns if column.type != "RATIO"]


def shape(kind: str, text: str, *parts: Any) -> Expression:
    """An expression; a decimal is given a type in DuckDB, where they grow wider than in Spark."""
    duck = _DUCK.get(text)
    if kind == "DECIMAL" and parts:
        duck = f"CAST({duck or text} AS DECIMAL(18,2))"
    return Expression(kind, text, parts, duck)


def family(sql_type: str) -> str:
    """The type of expressions that a column's belongs to."""
    return "BIGINT" if sql_type == "INT" else sql_type.split("(")[0]


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    if not conditions:
        return None
    joined = " AND ".join(f"{{{at}}}" for at in range(len(conditions)))
    return shape("BOOLEAN", f"({joined})", *conditions) if conditions[1:] else conditions[0]


class Expressions:
    """Makes expressions and conditions, as chance has it."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def some(self, scope: Scope, depth: int = 1) -> Expression:
        """Of any type that can be grouped and ordered by."""
        exact = scope.exact()
        if exact and self.chance.random() < 0.7:
            return self.chance.choice(exact)
        return self.of(self.kind(scope), scope, depth)

    def kind(self, scope: Scope, among: Sequence[str] = EXACT) -> str:
        """One of the types, mostly one that there are columns of."""
        present = [column.type for column in scope.columns if column.type in among]
        return self.chance.choice(present if present and self.chance.random() < 0.8 else among)

    def of(self, kind: str, scope: Scope, depth: int = 1) -> Expression:
        columns = scope.of(kind)
        if depth <= 0 or self.chance.random() < 0.4:
            return self.chance.choice(columns) if columns else self.literal(kind)
        choice = self.chance.random()
        if choice < 0.2:
            when = self.condition(scope, depth - 1)
            parts = (when, self.of(kind, scope, depth - 1), self.of(kind, scope, 0))
            return shape(kind, "CASE WHEN {0} THEN {1} ELSE {2} END", *parts)
        if choice < 0.4:
            text = self.chance.choice(_ANY_TYPE)
            return shape(kind, text, self.of(kind, scope, depth - 1), self.of(kind, scope, 0))
        if not _SHAPES[kind]:
            return self.condition(scope, depth - 1)
        text, kinds = self.chance.choice(_SHAPES[kind])
        return shape(kind, text, *(self.of(one, scope, depth - 1) for one in kinds))

    def literal(self, kind: str) -> Expression:
        if kind in ("BIGINT", "DECIMAL", "DOUBLE", "BOOLEAN"):
            found = value(self.chance, kind)
            text = f"{int(found * 100)}e-2" if kind == "DOUBLE" else str(found)
            return Expression(kind, f"({text})" if text.startswith("-") else text)
        if kind == "STRING":
            quoted = self.chance.choice(["", "a", "b,a", "it''s", "é", "中文"])
            return Expression(kind, f"'{quoted}'")
        moment = str(value(self.chance, kind)).removesuffix("+00:00")
        return Expression(kind, f"{kind} '{moment}'")

    def condition(self, scope: Scope, depth: int = 1) -> Expression:
        """A condition without subqueries, of three values where there are NULLs."""
        choice = self.chance.random()
        if depth > 0 and choice < 0.3:
            text = self.chance.choice(
                ["({0} AND {1})", "({0} OR {1})", "({0} OR NOT {1})", "(NOT ({0} AND {1}))"]
            )
            return shape(
                "BOOLEAN", text, self.condition(scope, depth - 1), self.condition(scope, 0)
            )
        one = self.varying(scope, depth)
        return shape("BOOLEAN", *self._asked(one.type, one, scope, depth))

    def varying(self, scope: Scope, depth: int = 1) -> Expression:
        """As `some`, and not the same for all rows: there is a column in it."""
        columns = scope.exact() or [column.value for column in scope.columns]
        one = self.some(scope, depth)
        text = one.sql("spark")
        if any(column.text in text for column in columns):
            return one
        return self.chance.choice(columns)

    def _asked(self, kind: str, one: Expression, scope: Scope, depth: int) -> tuple[Any, ...]:
        choice = self.chance.random()
        if choice < 0.15 or kind == "RATIO":
            return self.chance.choice(["({0} IS NULL)", "({0} IS NOT NULL)"]), one
        if choice < 0.25:
            text = self.chance.choice(
                ["({0} BETWEEN {1} AND {2})", "({0} NOT BETWEEN {1} AND {2})"]
            )
            return text, one, self.literal(kind), self.of(kind, scope, 0)
        if choice < 0.37:
            text = self.chance.choice(
                ["({0} IN ({1}, {2}))", "({0} NOT IN ({1}, {2}))", "({0} IN ({1}, NULL))"]
            )
            return text, one, self.literal(kind), self.literal(kind)
        if choice < 0.45:
            string = self.of("STRING", scope, depth)
            way = self.chance.choice(["LIKE", "NOT LIKE"])
            return f"({{0}} {way} '{self.chance.choice(_PATTERNS)}')", string
        if choice < 0.55 and kind == "BOOLEAN":
            return self.chance.choice(
                ["{0}", "(NOT {0})", "({0} IS TRUE)", "({0} IS NOT TRUE)"]
            ), one
        other = self.of(self._like(kind), scope, depth - 1)
        if other == one:
            other = self.literal(kind)
        if choice < 0.65:
            return "({0} <=> {1})", one, other
        return f"({{0}} {self.chance.choice(_COMPARISONS)} {{1}})", one, other

    def _like(self, kind: str) -> str:
        """A type that can be compared with this one."""
        if kind in NUMBERS and self.chance.random() < 0.2:
            return self.chance.choice(NUMBERS)
        return kind
