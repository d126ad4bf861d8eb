"""Random queries: the grammar, with weights by which all of it occurs.

What a query may not do is give more than one right answer: windows and LIMIT have total orders,
and what is computed with roundings is only shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from .expressions import EXACT, Column, Scope, shape
from .relations import Columns, Relations, named
from .tree import Derived, Explode, Expression, Grouping, Query, Select, SetOperation, Top

_SETS = ("UNION ALL", "UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
_WAYS = ("", " DESC", " NULLS LAST", " DESC NULLS FIRST")
Made = tuple[Select, Columns]


class Queries(Relations):
    """Makes queries over tables."""

    def query(self) -> Query:
        """Nested up to three deep."""
        self._begin()
        depth = self.chance.choices([0, 1, 2], [4, 4, 2])[0]
        if not self.now(0.12):
            return self.derived(depth)[0]
        ctes = []
        for at in range(self.chance.choice([1, 1, 2])):
            query, columns = self.derived(depth)
            self._ctes[f"w{at}"] = columns
            ctes.append((f"w{at}", query))
        return replace(self._select(depth)[0], ctes=tuple(ctes))

    def partitioned(self) -> list[Query]:
        """A query; and it where a condition is true, is false, is NULL."""
        self._begin()
        source, scope = self.source(1)
        whole = Select(named(self._values(scope, 3)), source)
        asked = self.condition(scope, 2)
        conditions = [asked, shape("BOOLEAN", "(NOT {0})", asked)]
        conditions.append(shape("BOOLEAN", "({0} IS NULL)", asked))
        return [whole, *(replace(whole, where=condition) for condition in conditions)]

    def _begin(self) -> None:
        self._numbers, self._ctes = count(), {}

    def derived(self, depth: int) -> tuple[Query, Columns]:
        return self._set_operation(depth) if self.now(0.13) else self._select(depth)

    def _set_operation(self, depth: int) -> tuple[Query, Columns]:
        kinds = self.chance.choices(EXACT, k=self.chance.randrange(1, 4))
        left, right = self._typed(kinds, depth), self._typed(kinds, depth)
        if depth > 0 and self.now(0.3):
            left = SetOperation(left, self.chance.choice(_SETS), self._typed(kinds, 0))
        how = self.chance.choice(_SETS)
        columns = tuple((f"c{at}", kind, True) for at, kind in enumerate(kinds))
        unique = None if how.endswith("ALL") else tuple(name for name, _, _ in columns)
        return SetOperation(left, how, right), Columns(columns, unique)

    def _typed(self, kinds: Sequence[str], depth: int) -> Query:
        """A query with columns of these types."""
        source, scope = self.source(depth)
        outputs = named([self.of(kind, scope) for kind in kinds])
        return Select(outputs, source, self.where(scope, depth), distinct=self.now(0.1))

    def _select(self, depth: int) -> Made:
        source, scope = self.source(depth)
        begun = Select((), source, self.where(scope, depth))
        if self.now(0.07) and (texts := scope.of("STRING")):
            begun, scope = self._exploded(begun, scope, self.chance.choice(texts))
        makers = [self._plain, self._global, self._grouped, self._windowed]
        weights = [40, 9, 35, 13] if scope.exact() else [1, 0, 0, 0]
        make = self.chance.choices(makers, weights)[0]
        query, columns = make(begun, scope, depth)
        if self.now(0.12) and all(kind != "RATIO" for _, kind, _ in columns.columns):
            limit, offset = self.chance.choice([1, 2, 3, 5, 10]), self.chance.choice([None, 1, 3])
            ways = tuple(self.chance.choices(_WAYS, k=3))
            query = replace(query, top=Top(limit, offset, ways))
            if make == self._plain and not query.distinct and scope.unique and self.now(0.5):
                query = replace(query, top=Top(limit, offset, ways, self._order(scope)))
        return query, columns

    def _order(self, scope: Scope) -> Expression:
        """An order by columns that the query need not show."""
        by = tuple(dict.fromkeys([self.chance.choice(scope.exact()), *(scope.unique or ())]))
        texts = (f"{{{at}}}{self.chance.choice(_WAYS)}" for at in range(len(by)))
        return Expression("ORDER", ", ".join(texts), by)

    def _exploded(self, begun: Select, scope: Scope, text: Expression) -> tuple[Select, Scope]:
        explode = Explode(text, self.alias("e"), "word", self.now(0.3))
        word = Column(Expression("STRING", f"{explode.alias}.word"))
        return replace(begun, explode=explode), Scope((*scope.columns, word))

    def _values(self, scope: Scope, most: int) -> list[Expression]:
        found = []
        for _ in range(self.chance.randrange(1, most + 1)):
            column = self.chance.choice(scope.columns).value
            found.append(column if self.now(0.7) else self.some(scope, 2))
        return found

    def _plain(self, begun: Select, scope: Scope, depth: int) -> Made:
        values = self._values(scope, 4)
        if depth > 0 and self.now(0.2):
            values.append(self.looked_up(scope, depth - 1))
        exact = [one for one in values if one.type != "RATIO"]
        distinct = self.now(0.2) and bool(exact)
        values = exact if distinct else values
        unique = None
        if scope.unique is not None and set(scope.unique) <= set(values):
            unique = tuple(f"c{values.index(one)}" for one in scope.unique)
        if distinct:
            unique = tuple(f"c{at}" for at in range(len(values)))
        query = replace(begun, outputs=named(values), distinct=distinct)
        return query, _columns(values, scope, unique)

    def _grouped(self, begun: Select, scope: Scope, depth: int) -> Made:
        number = self.chance.choice([1, 1, 2, 3])
        by = tuple(dict.fromkeys(self.varying(scope) for _ in range(number)))
        grouping = self._sets(by) if self.now(0.15) else Grouping(by)
        values = [one for one in by if self.now(0.85)]
        unique = None
        if len(values) == len(by) and not grouping.form:
            unique = tuple(f"c{at}" for at in range(len(by)))
        if grouping.form and self.now(0.7):
            values.append(shape("BIGINT", "grouping({0})", self.chance.choice(by)))
        values += self._aggregates(scope)
        having = None
        if self.now(0.25):
            outer = [] if grouping.form else [one for one in by if not one.parts]
            having = self._having(scope, outer, depth)
        query = replace(begun, outputs=named(values), grouping=grouping, having=having)
        return query, _columns(values, scope, unique, sure=not grouping.form)

    def _sets(self, by: tuple[Expression, ...]) -> Grouping:
        form = self.chance.choice(["ROLLUP", "CUBE", "GROUPING SETS"])
        if form != "GROUPING SETS":
            return Grouping(by, form)
        everything = tuple(range(len(by)))
        some = tuple(self.chance.sample(everything, self.chance.randrange(len(by))))
        return Grouping(by, form, (everything, some, ())[: self.chance.choice([2, 3])])

    def _aggregates(self, scope: Scope) -> list[Expression]:
        found = [self.aggregate(scope) for _ in range(self.chance.randrange(1, 4))]
        if len(found) > 1 and found[0].type == found[1].type == "BIGINT":
            found[1] = shape("BIGINT", "({0} - {1})", found[0], found[1])
        return found

    def _having(self, scope: Scope, by: Sequence[Expression], depth: int) -> Expression:
        found = self.aggregate(scope)
        if found.type == "RATIO":
            found = shape("BIGINT", "count(*)")
        other = self.literal(found.type)
        if depth > 0 and self.now(0.5):
            outer = Scope(tuple(map(Column, by))) if by and self.now(0.6) else None
            other = self.scalar(found.type, outer, depth - 1)
        way = self.chance.choice([">", "<=", "="])
        return shape("BOOLEAN", f"({{0}} {way} {{1}})", found, other)

    def _global(self, begun: Select, scope: Scope, depth: int) -> Made:
        values = self._aggregates(scope)
        having = self._having(scope, [], depth) if self.now(0.1) else None
        query = replace(begun, outputs=named(values), having=having)
        return query, _columns(values, scope, ())

    def _windowed(self, begun: Select, scope: Scope, depth: int) -> Made:
        """Rows with what windows say of them; perhaps only those of which they say little."""
        unsure = any(column.type == "RATIO" for column in scope.columns)
        if unsure and scope.unique is None:
            return self._plain(begun, scope, depth)
        calls = [self.window(scope) for _ in range(self.chance.choice([1, 2]))]
        values = self._values(scope, 2) + calls
        query, columns = replace(begun, outputs=named(values)), _columns(values, scope, None)
        last = values[-1].type
        if last == "RATIO" or not self.now(0.3):
            return query, columns
        alias = self.alias("q")
        shown = [column.value for column in columns.scope(alias).columns]
        few = shape("BOOLEAN", "({0} <= {1})", shown[-1], self.literal(last))
        return Select(named(shown), Derived(query, alias), few), columns


def _columns(
    values: Sequence[Expression],
    scope: Scope,
    unique: tuple[str, ...] | None,
    sure: bool = True,
) -> Columns:
    """With `sure`, columns that are passed on and have no NULLs still have none."""
    whole = {column.value for column in scope.columns if sure and not column.nullable}
    found = ((f"c{at}", one.type, one not in whole) for at, one in enumerate(values))
    return Columns(tuple(found), unique)
