"""Making a case that fails small: one query, few changes, few rows, few clauses.

Smaller queries are tried whether they make sense or not; DuckDB says at once which don't.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import duckdb

from everview.check.fewest import fewest

from .cases import Case
from .oracle import Duck
from .tables import Change, Table
from .tree import Expression, Join, Query, Select, SetOperation, Written

_SECONDS = 150.0


@dataclass
class Shrinking:
    """`fails` runs a case, and says whether it fails as it did."""

    fails: Callable[[Case], bool]
    seconds: float = _SECONDS

    def shrink(self, case: Case) -> Case:
        """The case with less of everything, as far as time allows."""
        self._end = time.monotonic() + self.seconds
        case = self._with_fewer_changes(self._without_batches(case))
        case = self._with_smaller_query(case)
        case = self._with_fewer_changes(case)
        return self._if_fails(case, _without_unused(case))

    def _still(self, case: Case) -> bool:
        return time.monotonic() < self._end and self.fails(case)

    def _if_fails(self, case: Case, smaller: Case) -> Case:
        return smaller if self._still(smaller) else case

    def _without_batches(self, case: Case) -> Case:
        """All at once if it fails so too, else one by one."""
        for step in (len(case.changes), 1):
            case = self._if_fails(case, replace(case, step=step))
        return case

    def _with_fewer_changes(self, case: Case) -> Case:
        def still(changes: Any) -> bool:
            return self._still(replace(case, changes=tuple(changes)))

        case = replace(case, changes=tuple(fewest(list(case.changes), still)))
        for at, change in enumerate(case.changes):
            for name in ("put", "delete"):
                case = self._with_fewer(case, at, change, name)
        return case

    def _with_fewer(self, case: Case, at: int, change: Change, name: str) -> Case:
        def having(items: Any) -> Case:
            less: Any = {name: tuple(items)}
            smaller = replace(case.changes[at], **less)
            return replace(case, changes=(*case.changes[:at], smaller, *case.changes[at + 1 :]))

        items = list(getattr(change, name))
        return having(fewest(items, lambda some: self._still(having(some)))) if items else case

    def _with_smaller_query(self, case: Case) -> Case:
        if len(case.queries) != 1:
            return case
        found = True
        while found:
            found = False
            for query in sorted(smaller(case.queries[0]), key=lambda one: len(one.sql("spark"))):
                candidate = replace(case, queries=(query,))
                if _makes_sense(candidate) and self._still(candidate):
                    case, found = candidate, True
                    break
        return case


def smaller(query: Query) -> Iterator[Query]:
    """Queries with one clause, output, operand or level less."""
    for one in _smaller(query):
        if isinstance(one, Select | SetOperation) and _has_outputs(one):
            yield one


def _smaller(node: Any) -> Iterator[Any]:
    if isinstance(node, Expression):
        parts = (part for part in _within(node) if isinstance(part, Expression))
        yield from (part for part in parts if part.type == node.type)
    if isinstance(node, Select | SetOperation):
        yield from (part for part in _within(node) if isinstance(part, Select | SetOperation))
    if isinstance(node, Join):
        yield from (node.left, node.right)
    if isinstance(node, tuple):
        for at, item in enumerate(node):
            yield from ((*node[:at], one, *node[at + 1 :]) for one in _smaller(item))
    if not is_dataclass(node) or isinstance(node, type):
        return
    for one in fields(node):
        for less in _less(node, getattr(node, one.name)):
            yield replace(node, **{one.name: less})


def _less(node: Any, value: Any) -> Iterator[Any]:
    """What a field may have instead."""
    if value is True:
        yield False
    if value is not None and isinstance(node, Select) and not isinstance(value, tuple | bool):
        yield None
    if isinstance(value, tuple) and not isinstance(node, Expression):
        yield from (value[:at] + value[at + 1 :] for at in range(len(value)))
    yield from _smaller(value)


def _within(node: Any) -> Iterator[Any]:
    """All parts of a tree, without itself."""
    values = node if isinstance(node, tuple) else ()
    if is_dataclass(node) and not isinstance(node, type):
        values = tuple(getattr(node, one.name) for one in fields(node))
    for value in values:
        if is_dataclass(value):
            yield value
        yield from _within(value)


def _has_outputs(query: Query) -> bool:
    parts = [query, *_within(query)]
    selects = [part for part in parts if isinstance(part, Select)]
    return all(select.outputs and select.source is not None for select in selects)


def _makes_sense(case: Case) -> bool:
    duck = Duck()
    try:
        duck.load({table.name: table.arrow().empty_table() for table in case.tables})
        duck.rows(case.queries[0].sql("duck"))
    except duckdb.Error:
        return False
    finally:
        duck.close()
    return True


def _without_unused(case: Case) -> Case:
    """No table and no column that the queries don't name."""
    text = " ".join(query.sql("spark") for query in case.queries)
    words = set(re.findall(r"\w+", text))
    tables = tuple(_narrow(table, words) for table in case.tables if table.name in words)
    columns = {table.name: set(table.types) for table in tables}
    changes = tuple(
        replace(
            change,
            put=tuple(
                {name: value for name, value in row.items() if name in columns[change.table]}
                for row in change.put
            ),
        )
        for change in case.changes
        if change.table in columns
    )
    return replace(case, tables=tables, changes=changes)


def _narrow(table: Table, words: set[str]) -> Table:
    kept = [column for column in table.columns if column[0] in table.key or column[0] in words]
    return replace(table, columns=tuple(kept))


def as_text(case: Case) -> Case:
    """The case with its queries written out: its repr can be kept among those found."""
    queries = []
    for query in case.queries:
        spark, duck = query.sql("spark"), query.sql("duck")
        queries.append(Written(spark, None if spark == duck else duck))
    return replace(case, queries=tuple(queries))
