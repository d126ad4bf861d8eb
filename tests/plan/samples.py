"""Tables in memory for estimates: sampled whole, with conditions as simple as `column < number`."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.plan.cost import DEFAULTS
from everview.plan.estimates import Estimates
from everview.plan.expressions import column_of, readable
from everview.plan.facts import Costs, Facts, TableFacts
from everview.plan.nodes import Aggregate, Filter, Node, Project, Source
from everview.plan.statistics import RANGE

LESS = re.compile(r"(\w+) < (\d+)")


class Tables:
    """`Samples` of tables by name; the first column of each is its key. Of each every `step`-th row
    is sampled."""

    def __init__(self, step: int = 1, **tables: pa.Table) -> None:
        self._tables = tables
        self._step = step

    def rows(self, table: str) -> int:
        return int(self._tables[table].num_rows)

    def key(self, table: str) -> tuple[str, ...]:
        return (self._tables[table].column_names[0],)

    def sample(self, source: Source) -> tuple[pa.Table, int]:
        rows = self._named(source, self._tables[source.table])
        rows = rows.take(np.arange(0, len(rows), self._step))
        ranges = pa.array(np.arange(len(rows)) % 64, pa.int32())
        return rows.append_column(RANGE, ranges), rows.num_rows

    def find(self, source: Source, keys: pa.Table) -> pa.Table:
        rows = self._tables[source.table]
        wanted = pc.is_in(rows[keys.column_names[0]], keys[0].combine_chunks())
        return self._named(source, rows.filter(wanted))

    def aggregate(self, node: Aggregate, rows: pa.Table) -> pa.Table:
        found = rows.group_by([*node.groups, RANGE], use_threads=False).aggregate([])
        calls = {name: pa.nulls(len(found), pa.int64()) for name in node.names()}
        columns = {n: found[n] if n in node.groups else calls[n] for n in node.names()}
        return pa.table({**columns, RANGE: found[RANGE]})

    def compute(self, node: Node, below: Node, rows: pa.Table) -> pa.Table | None:
        if node is below:
            return rows
        assert isinstance(node, Filter | Project)
        rows = self.compute(node.input, below, rows)
        if isinstance(node, Filter):
            match = LESS.fullmatch(readable(node.condition))
            assert match
            return rows.filter(pc.less(rows[match[1]], int(match[2])))
        chosen = rows.select([*map(column_of, node.expressions), RANGE])
        return chosen.rename_columns([*node.names(), RANGE])

    def _named(self, source: Source, rows: pa.Table) -> pa.Table:
        return rows.select(list(source.read)).rename_columns(source.names())


def numbers(count: int, **columns: int) -> pa.Table:
    """Rows 0 to count - 1 under `id`, and columns of any values below some number."""
    rng = np.random.default_rng(count)
    made = {name: rng.integers(0, below, count) for name, below in columns.items()}
    return pa.table({"id": np.arange(count), **made})


def facts_of(tables: Tables, shares: dict[str, float], kept: frozenset[str] = frozenset()) -> Facts:
    costs = Costs(Estimates(tables), DEFAULTS["spark"], shares, dict.fromkeys(shares, 2.0), kept, 2)
    return Facts({table: TableFacts(tables.key(table)) for table in shares}, costs)
