"""What changes of a table make the operators of a plan do: rows in and out, reads and writes.

Changes are thought to hit rows of their table evenly, and to come in one epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from everview.plan.estimates import STATELESS, Estimates
from everview.plan.nodes import (
    Aggregate,
    Constant,
    Join,
    Node,
    Recompute,
    Refresh,
    Replace,
    Source,
    Threshold,
    TopK,
    Touched,
    Union,
)
from everview.plan.statistics import touched

UPDATED = 2.0  # rows of a delta for each change, if all are updates


@dataclass(frozen=True)
class Flow:
    """Of a node: `rows` of its delta, which come from so many `changes`; what goes into an
    operator, and what it reads and writes of its state."""

    rows: float = 0.0
    changes: float = 0.0
    rows_in: float = 0.0
    reads: float = 0.0
    writes: float = 0.0

    @property
    def each(self) -> float:
        """Rows of the delta for each change: two if all are updates."""
        return self.rows / self.changes if self.changes else 0.0

    def times(self, share: float) -> Flow:
        return Flow(self.rows * share, self.changes * share)


class Flows:
    """Of changes of one table through nodes; `rows_of_change` is how many rows a change of a table
    has in its delta."""

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
        """Of a view's own rows."""
        below, rows = self.of(plan), self._estimates.of(plan)
        keys = min(touched(below.changes, rows.distinct(key)), below.rows)
        return Flow(keys, keys, below.rows, keys, keys)

    def _make(self, node: Node) -> Flow:
        if isinstance(node, Source):
            if node.table != self._table:
                return Flow()
            found = self._estimates.of(node)
            share = found.rows / found.whole if found.whole else 1.0
            return Flow(self._changes * self._rows_of_change, self._changes).times(share)
        if isinstance(node, Constant):
            return Flow()
        below = [self.of(one) for one in node.inputs()]
        if not any(flow.rows for flow in below):
            return Flow()
        if isinstance(node, Refresh):
            given = self._estimates.of(node).rows
            return Flow(given, given)
        if isinstance(node, STATELESS):
            return below[0].times(self._ratio(node, node.input))
        if isinstance(node, Union):
            return Flow(sum(flow.rows for flow in below), sum(flow.changes for flow in below))
        if isinstance(node, Join):
            return self._join(node, *below)
        if isinstance(node, Aggregate):
            return self._aggregate(node, below[0])
        if isinstance(node, Threshold):
            passed = below[0].times(self._ratio(node, node.input))
            moves = float(below[1].rows > 0)
            return Flow(
                passed.rows,
                passed.changes,
                below[0].rows + below[1].rows,
                1.0,
                below[0].rows + moves,
            )
        if isinstance(node, TopK):
            kept = self._estimates.of(node.input).rows
            reads = 2 * min(node.limit + node.offset + 1, kept)
            shown = 2 * min(node.limit, kept)
            return Flow(shown, shown / 2, below[0].rows, reads, below[0].rows)
        return self._by_group(node, below[0])

    def _ratio(self, node: Node, below: Node) -> float:
        rows = self._estimates.of(below).rows
        return self._estimates.of(node).rows / rows if rows else 0.0

    def _join(self, node: Join, left: Flow, right: Flow) -> Flow:
        of_left, of_right = self._estimates.of(node.left), self._estimates.of(node.right)
        copies = self._shards if node.replicated else 1
        out = self._estimates.of(node).rows
        paired = node.how in ("inner", "left", "full", "single")
        # partners of a changed row on the other side
        partners = out / max(of_left.rows, 1), out / max(of_right.rows, 1)
        keys = (
            touched(left.changes, of_left.distinct(node.left_keys)),
            touched(right.changes, of_right.distinct(node.right_keys)),
        )
        reads = writes = 0.0
        given = left.times(partners[0])
        if paired:
            reads += keys[0] * max(1.0, partners[0]) + copies * keys[1] * max(1.0, partners[1])
            writes += copies * right.rows
            given = _both(given, right.times(partners[1]))
        writes += left.rows
        if node.how != "inner":
            reads += keys[0] + copies * keys[1]
            writes += copies * keys[1]
            turned = self._turned(node, right, keys[1])
            reads += turned
            given = given if paired else _both(given, Flow(turned, turned))
        return Flow(given.rows, given.changes, left.rows + copies * right.rows, reads, writes)

    def _turned(self, node: Join, right: Flow, keys: float) -> float:
        """Rows of the left that get their first partner, or lose their last."""
        of_left, of_right = self._estimates.of(node.left), self._estimates.of(node.right)
        of_key = of_right.rows / of_right.distinct(node.right_keys)
        alone = max(0.0, 2 - right.each) / max(of_key, 1.0)
        return keys * alone * of_left.rows / of_left.distinct(node.left_keys)

    def _aggregate(self, node: Aggregate, below: Flow) -> Flow:
        rows, groups = self._estimates.of(node.input).rows, self._estimates.of(node).rows
        hit = touched(below.changes, groups)
        # a group's row goes and comes, unless it was not there before or isn't any more
        out = hit * max(1.0, 2 - max(0.0, 2 - below.each) * groups / max(rows, 1.0))
        arguments = {call.argument for call in node.calls if call.keeps_values}
        looked_up = sum(call.definition.from_values for call in node.calls)
        reads = hit + below.rows * len(arguments) + 2 * hit * looked_up
        return Flow(out, hit, below.rows, reads, hit + below.rows * len(arguments))

    def _by_group(self, node: Node, below: Flow) -> Flow:
        """All rows of the groups touched; and of what is computed from them, what may differ."""
        if isinstance(node, Touched):
            kept = self._estimates.of(node.input)
            groups = kept.distinct(node.groups) if node.groups else 1.0
            hit = touched(below.changes, groups)
            rows = hit * kept.rows / groups
            return Flow(rows + hit, hit, below.rows, rows, below.rows)
        if isinstance(node, Recompute):
            return below if node.rows_stay else Flow(below.changes, below.changes)
        assert isinstance(node, Replace)
        return Flow(below.rows, below.changes, below.rows, below.rows, below.rows)


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


def _both(one: Flow, other: Flow) -> Flow:
    return Flow(one.rows + other.rows, one.changes + other.changes)
