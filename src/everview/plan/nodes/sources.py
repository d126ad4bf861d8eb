"""Where rows come from: the log of a table, or a whole query over whole tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from everview.plan.conditions import Condition
from everview.plan.expressions import Tree
from everview.plan.nodes.base import IN_FULL, Key, KeyOfTable, Node, later, renamed
from everview.plan.sizes import Flow, RowsOf


@dataclass(frozen=True, eq=False, repr=False)
class Source(Node):
    """Changes of the rows of a table for which all conditions `where` hold; `read[i]` is the name
    of `columns[i]` in the table."""

    kind = "source"
    table: str
    read: tuple[str, ...]
    where: tuple[Condition, ...] = later(())

    def label(self) -> str:
        where = f" where {' AND '.join(map(str, self.where))}" if self.where else ""
        return f"source {self.table} ({', '.join(self.read)}){where}"

    def own_tables(self) -> set[str]:
        return {self.table}

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        named = {read: column.name for read, column in zip(self.read, self.columns, strict=True)}
        return renamed(key_of_table(self.table), named)


@dataclass(frozen=True, eq=False, repr=False)
class Refresh(Node):
    """A query over whole tables, which the engine computes anew whenever one of them changes."""

    kind = "refresh"
    expression_field = "query"
    sources: tuple[Source, ...]
    query: Tree

    def label(self) -> str:
        return f"refresh: the whole query over {', '.join(source.table for source in self.sources)}"

    def own_tables(self) -> set[str]:
        return {source.table for source in self.sources}

    def maintenance(self) -> str:
        return IN_FULL

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        rows = rows_of(self).rows
        return Flow(rows, rows)
