"""The work of a plan's operators for changes of a table: rows in and out, reads and writes.

Changes are assumed to hit rows of their table evenly, and to come in one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from everview.plan.estimates import Estimates
from everview.plan.nodes import Constant, Node, Source
from everview.plan.sizes import Flow
from everview.plan.statistics import touched

UPDATED = 2.0  # rows of a delta for each change, if all are updates


class Flows:
    """The flows of one table's changes through nodes; `rows_of_change` is how many rows a change
    has in the table's delta."""

    def __init__(
        self,
        estimates: Estimates,
        table: str,
        changes: float,
        rows_of_change: float = UPDATED,
        shards: int = 1,
    ) -> None:
        self._estimates = estimates
        self._table = table
        self._changes = changes
        self._rows_of_change = rows_of_change
        self._shards = shards
        self._known: dict[str, Flow] = {}

    def of(self, node: Node) -> Flow:
        if node.identity not in self._known:
            self._known[node.identity] = self._make(node)
        return self._known[node.identity]

    def of_view(self, plan: Node, key: tuple[str, ...]) -> Flow:
        """The flow into a view's own rows."""
        below, rows = self.of(plan), self._estimates.of(plan)
        keys = min(touched(below.changes, rows.distinct(key)), below.rows)
        return Flow(keys, keys, below.rows, keys, keys)

    def _make(self, node: Node) -> Flow:
        if isinstance(node, Source):
            if node.table != self._table:
                return Flow()
            estimate = self._estimates.of(node)
            share = estimate.rows / estimate.whole if estimate.whole else 1.0
            return Flow(self._changes * self._rows_of_change, self._changes).times(share)
        if isinstance(node, Constant):
            return Flow()
        below = [self.of(input_node) for input_node in node.inputs()]
        if not any(flow.rows for flow in below):
            return Flow()
        return node.flow(below, self._estimates.of, self._shards)


def flows_by_table(
    plan: Node,
    estimates: Estimates,
    changes: float,
    rows_of_change: Mapping[str, float],
    shards: int,
) -> dict[str, Flows]:
    """For each table of a plan, the flows of so many changes of it."""
    return {
        table: Flows(estimates, table, changes, rows_of_change.get(table, UPDATED), shards)
        for table in sorted(plan.tables())
    }
