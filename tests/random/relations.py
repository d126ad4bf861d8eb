"""Random FROM clauses, and the subqueries that conditions and SELECT lists ask."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from .expressions import EXACT, Column, Scope, conjunction, family, shape
from .functions import Functions
from .tables import Table
from .tree import Derived, Expression, Join, Named, Output, Query, Select, Source, Values

_JOINS = {
    "": 50,
    "LEFT": 15,
    "RIGHT": 8,
    "FULL OUTER": 10,
    "CROSS": 5,
    "LEFT SEMI": 6,
    "LEFT ANTI": 6,
}
_EQUAL = ("({0} = {1})", "({0} <=> {1})")


@dataclass(frozen=True)
class Columns:
    """The columns of a relation: name, type and whether NULL may be in it; and those in which no
    two of its rows are equal, if that is known."""

    columns: tuple[tuple[str, str, bool], ...]
    unique: tuple[str, ...] | None = None

    def scope(self, alias: str) -> Scope:
        columns = {
            name: Column(Expression(kind, f"{alias}.{name}"), nullable)
            for name, kind, nullable in self.columns
        }
        unique = None
        if self.unique is not None:
            unique = tuple(columns[name].value for name in self.unique)
        return Scope(tuple(columns.values()), unique)


class Relations(Functions):
    """Makes FROM clauses over tables and common table expressions, `named`."""

    def __init__(self, chance: random.Random, tables: Sequence[Table]) -> None:
        super().__init__(chance)
        self._tables = {table.name: _columns(table) for table in tables}
        self._ctes: dict[str, Columns] = {}
        self._numbers = count()

    def derived(self, depth: int) -> tuple[Query, Columns]:
        """A query to select from."""
        raise NotImplementedError

    def now(self, share: float) -> bool:
        return self.chance.random() < share

    def alias(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    def source(self, depth: int) -> tuple[Source, Scope]:
        """One to four relations, joined; only one of the joins may be without an equality."""
        source, scope = self._relation(depth)
        loose = 0
        for _ in range(self.chance.choices([0, 1, 2, 3], [50, 33, 12, 5])[0]):
            how = self.chance.choices(list(_JOINS), list(_JOINS.values()))[0]
            right, other = self._relation(depth if how != "CROSS" else 0)
            on = None if how == "CROSS" else self._on(scope, other)
            loose += on is None or not _is_equality(on)
            if loose > 1:
                break
            source, scope = Join(source, how, right, on), _joined(scope, how, other)
        return source, scope

    def _on(self, left: Scope, right: Scope) -> Expression:
        """Mostly an equality; perhaps with more conditions, or only those."""
        both = Scope(left.columns + right.columns)
        equal = self._equal(left, right)
        if equal is None or self.now(0.12):
            return self.condition(both, 0)
        if self.now(0.3):
            return shape("BOOLEAN", "({0} AND {1})", equal, self.condition(both, 1))
        return equal

    def _equal(self, left: Scope, right: Scope) -> Expression | None:
        pairs = [(a, b) for a in left.exact() for b in right.exact() if a.type == b.type]
        if not pairs:
            return None
        mixed = [(a, b) for a in left.of("BIGINT") for b in right.of("DECIMAL")]
        whole = [(a, b) for a, b in pairs if a.type == "BIGINT"]
        if mixed and self.now(0.1):
            pairs = mixed
        elif whole and self.now(0.5):
            pairs = whole
        one, other = self.chance.choice(pairs)
        if one.type == "BIGINT" and self.now(0.05):
            one = shape("BIGINT", "({0} + 1)", one)
        return shape("BOOLEAN", _EQUAL[self.now(0.1)], one, other)

    def _relation(self, depth: int) -> tuple[Source, Scope]:
        if depth > 0 and self.now(0.3):
            query, columns = self.derived(depth - 1)
            alias = self.alias("q")
            return Derived(query, alias), columns.scope(alias)
        if self.now(0.04):
            return self._given()
        named = self._ctes if self._ctes and self.now(0.5) else self._tables
        name = self.chance.choice(list(named))
        alias = self.alias("a")
        return Named(name, alias), named[name].scope(alias)

    def _given(self) -> tuple[Source, Scope]:
        """VALUES; the first of each column is not NULL, which gives it its type."""
        kinds = self.chance.choices(EXACT, k=self.chance.choice([1, 2]))
        first = tuple(map(self.literal, kinds))
        others = tuple(
            tuple(
                Expression(kind, "NULL") if self.now(0.2) else self.literal(kind) for kind in kinds
            )
            for _ in range(self.chance.choice([0, 1, 2]))
        )
        columns = Columns(tuple((f"c{at}", kind, True) for at, kind in enumerate(kinds)))
        names, alias = tuple(name for name, _, _ in columns.columns), self.alias("v")
        return Values((first, *others), names, alias), columns.scope(alias)

    def where(self, scope: Scope, depth: int) -> Expression | None:
        number = self.chance.choices([0, 1, 2], [10, 4, 1])[0]
        asked = [self.condition(scope) for _ in range(number)]
        if depth > 0 and scope.exact() and self.now(0.4):
            found = self._asked_of_tables(scope, depth - 1)
            if self.now(0.2):
                found = shape("BOOLEAN", "({0} OR {1})", self.condition(scope, 0), found)
            asked.append(found)
        return conjunction(asked)

    def _asked_of_tables(self, scope: Scope, depth: int) -> Expression:
        choice = self.chance.random()
        if choice < 0.35:
            return self._exists(scope, depth)
        one = self.varying(scope)
        if choice < 0.65:
            inner = self._inner(one.type, scope if self.now(0.25) else None, depth)
            way = self.chance.choice(["IN", "NOT IN"])
            return shape("BOOLEAN", f"({{0}} {way} ({{1}}))", one, inner)
        way = self.chance.choice(["=", "<>", "<", "<=", ">", ">="])
        other = self.scalar(one.type, scope if self.now(0.5) else None, depth)
        sides = (one, other) if self.now(0.8) else (other, one)
        return shape("BOOLEAN", f"({{0}} {way} {{1}})", *sides)

    def _exists(self, scope: Scope, depth: int) -> Expression:
        source, inner = self.source(depth)
        equal = self._equal(inner, scope)
        asked = [equal] if equal is not None and self.now(0.9) else []
        if self.now(0.3):
            asked.append(self.condition(Scope(inner.columns + scope.columns), 1))
        query = Select(named([Expression("BIGINT", "1")]), source, conjunction(asked))
        return shape("BOOLEAN", f"({self.chance.choice(['', 'NOT '])}EXISTS ({{0}}))", query)

    def _inner(self, kind: str, outer: Scope | None, depth: int) -> Select:
        """A query of one column, perhaps for a row of an outer query."""
        source, scope = self.source(depth)
        asked = [self.condition(scope)] if self.now(0.5) else []
        equal = None if outer is None else self._equal(scope, outer)
        if equal is not None:
            asked.append(equal)
        return Select(named([self.of(kind, scope)]), source, conjunction(asked))

    def scalar(self, kind: str, outer: Scope | None, depth: int) -> Expression:
        """A subquery of one value, perhaps for a row of an outer query."""
        inner = self._inner(kind, outer, depth)
        texts = ["max({0})", "min({0})"]
        if kind == "BIGINT":
            texts += ["count({0})", "count(*)"]
        if kind in ("BIGINT", "DOUBLE"):
            texts.append("sum({0})")
        text = self.chance.choice(texts)
        parts = (inner.outputs[0].value,) if "{0}" in text else ()
        duck = f"CAST({text} AS {kind})" if text.startswith("sum") else None
        call = Expression(kind, text, parts, duck)
        return shape(kind, "({0})", replace(inner, outputs=named([call])))

    def looked_up(self, scope: Scope, depth: int) -> Expression:
        """A subquery in the SELECT list; IN only where no NULL is, which Spark shows as false."""
        choice = self.chance.random()
        if choice < 0.3:
            return self._exists(scope, depth)
        sure = [column.value for column in scope.columns if not column.nullable]
        if choice < 0.5 and sure:
            return self._is_in(self.chance.choice(sure))
        return self.scalar(self.kind(scope), scope if self.now(0.6) else None, depth)

    def _is_in(self, one: Expression) -> Expression:
        keys = [
            (table, name)
            for table, columns in self._tables.items()
            for name, kind, nullable in columns.columns
            if kind == one.type and not nullable
        ]
        if not keys:
            return shape("BOOLEAN", "({0} IN ({1}))", one, self.literal(one.type))
        table, name = self.chance.choice(keys)
        alias = self.alias("a")
        value = Expression(one.type, f"{alias}.{name}")
        return shape("BOOLEAN", "({0} IN ({1}))", one, Select(named([value]), Named(table, alias)))


def named(values: Sequence[Expression]) -> tuple[Output, ...]:
    return tuple(Output(value, f"c{at}") for at, value in enumerate(values))


def _columns(table: Table) -> Columns:
    columns = tuple((name, family(kind), name not in table.key) for name, kind in table.columns)
    return Columns(columns, table.key)


def _is_equality(on: Expression) -> bool:
    return any(part.text in _EQUAL for part in (on, *on.parts[:1]) if isinstance(part, Expression))


def _joined(left: Scope, how: str, right: Scope) -> Scope:
    if how in ("LEFT SEMI", "LEFT ANTI"):
        return left
    lefts, rights = left.columns, right.columns
    if how in ("LEFT", "FULL OUTER"):
        rights = tuple(replace(column, nullable=True) for column in rights)
    if how in ("RIGHT", "FULL OUTER"):
        lefts = tuple(replace(column, nullable=True) for column in lefts)
    if left.unique is None or right.unique is None or how == "FULL OUTER":
        return Scope(lefts + rights)
    return Scope(lefts + rights, left.unique + right.unique)
