"""How many rows each node of a plan has, estimated from samples of its tables.

Nodes without state are computed on sampled rows, so filters and expressions are measured and not
guessed. A join by the key of a table is measured too, by looking up the partners of sampled rows,
so that correlations between tables count. For the rest there are formulas: a join's sides are
assumed to be independent, and a condition that can't be measured to leave a third.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from everview.plan.expressions import column_of, not_null_columns
from everview.plan.keys import unique_key
from everview.plan.nodes import (
    Aggregate,
    Constant,
    Filter,
    Generate,
    Join,
    Matches,
    Node,
    Project,
    Recompute,
    Refresh,
    Source,
    Threshold,
    Union,
)
from everview.plan.sizes import GUESS
from everview.plan.statistics import RANGE, distinct, width
from everview.schema import is_nested

STATELESS = (Filter, Project, Generate)
_MOST_LOOKED_UP = 12  # tables of a join: each may be looked up for each of the others
_TOGETHER = 1.1
_MOST_MEMBERS = 50  # whose rows are counted


class Samples(Protocol):
    """Provides rows of tables, and computes on them."""

    def rows(self, table: str) -> int:
        """How many rows a table has."""

    def key(self, table: str) -> tuple[str, ...]:
        """The primary key of a table."""

    def sample(self, source: Source) -> tuple[pa.Table, int]:
        """The rows of a source, with RANGE, in a sample of its table, and the number of rows in the
        sample; the sample of a small table has all rows."""

    def find(self, source: Source, keys: pa.Table) -> pa.Table:
        """Rows of a source by the columns of its table's key."""

    def aggregate(self, node: Aggregate, rows: pa.Table) -> pa.Table | None:
        """The groups of some rows of an aggregate's input, for each RANGE; None if that fails."""

    def compute(self, node: Node, below: Node, rows: pa.Table) -> pa.Table | None:
        """The result of the stateless nodes from `node` down to above `below`, for rows of `below`,
        with their RANGE; None if that fails."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the rows of a node.

    `whole` is how many there would be without filters; `sample` has some of them, if possible.
    Without a sample, `values` has the number of distinct values of each column.
    """

    node: Node
    rows: float
    whole: float
    sample: pa.Table | None
    values: Mapping[str, float]

    def distinct(self, names: Iterable[str]) -> float:
        """How many distinct values the columns have together."""
        names = list(names)
        if self.sample is not None:
            return max(1.0, distinct(self.sample, names, self.rows))
        return max(1.0, min(float(np.prod([self.values[name] for name in names])), self.rows))

    def width(self, names: Iterable[str]) -> float:
        """Bytes of the columns in a row of state."""
        return sum(width(self.node.column(name), self.sample) for name in names)

    def of(self, node: Node, rows: float, sample: pa.Table | None = None) -> Estimate:
        """The estimate of a node that has some of these rows, or all."""
        if sample is not None:
            return replace(self, node=node, rows=rows, sample=sample)
        values = {name: self._values(name, rows) for name in node.names()}
        return Estimate(node, rows, self.whole, None, values)

    def _values(self, name: str, rows: float) -> float:
        return min(self.distinct([name]), rows) if name in self.node.names() else rows


class Estimates:
    """The estimates of nodes of plans over the same tables; each is computed once."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._known: dict[str, Estimate] = {}
        self._read: dict[str, int] = {}

    def of(self, node: Node) -> Estimate:
        if node.identity not in self._known:
            self._known[node.identity] = self._make(node)
        return self._known[node.identity]

    def is_unique(self, node: Node, names: Sequence[str]) -> bool:
        """Whether no two rows of a node have the same values there."""
        key = unique_key(node, self._samples.key)
        return key is not None and set(key) <= set(names)

    def table_rows(self, table: str) -> int:
        return self._samples.rows(table)

    def _make(self, node: Node) -> Estimate:
        if isinstance(node, Source):
            whole = float(self._samples.rows(node.table))
            sample, sampled = self._samples.sample(node)
            return Estimate(node, _share(whole, sample, sampled), whole, sample, {})
        if isinstance(node, Constant):
            rows = float(len(node.rows))
            return Estimate(node, rows, rows, None, dict.fromkeys(node.names(), rows))
        if isinstance(node, STATELESS):
            return self._computed(node)
        if isinstance(node, Join):
            return self._joined(node)
        if isinstance(node, Union):
            parts = [self.of(part) for part in node.parts]
            rows, whole = sum(p.rows for p in parts), sum(p.whole for p in parts)
            values = {name: sum(p.distinct([name]) for p in parts) for name in node.names()}
            return Estimate(node, rows, whole, None, values)
        if isinstance(node, Aggregate):
            return self._aggregated(node)
        if isinstance(node, Matches):
            return self._matched(node)
        if isinstance(node, Refresh):  # nothing is known about the query
            rows = float(max(self._samples.rows(source.table) for source in node.sources))
            return Estimate(node, rows, rows, None, dict.fromkeys(node.names(), rows))
        below = self.of(node.inputs()[0])
        if isinstance(node, Recompute) and not node.rows_stay:
            return self._grouped(node, node.input.groups)
        rows = node.expected_rows([self.of(input_node) for input_node in node.inputs()])
        # rows that pass a threshold are assumed to have values like the others
        return below.of(node, rows, below.sample if isinstance(node, Threshold) else None)

    def _computed(self, node: Node) -> Estimate:
        """The estimate of a stateless node, with the stateless nodes below it."""
        base, filters = node, 0
        while isinstance(base, STATELESS):
            filters += isinstance(base, Filter) and not_null(base) is None
            base = base.input
        below = self.of(base)
        if below.sample is not None:
            sample = self._samples.compute(node, base, below.sample)
            if sample is not None:
                return below.of(node, _scaled(below, sample), sample)
        return _renamed(node, base, below.of(base, below.rows * GUESS**filters))

    def _aggregated(self, node: Aggregate) -> Estimate:
        """The groups. If groups lie together in their table, or the sample has the whole table, the
        groups in the sample are whole, and become the sample of the groups."""
        below, estimate = self.of(node.input), self._grouped(node, node.groups)
        if below.sample is None or not below.sample.num_rows or not below.rows or not node.groups:
            return estimate  # a sample may have rows where none are expected, as for an anti join
        sample = self._samples.aggregate(node, below.sample)
        most = estimate.rows * _TOGETHER * below.sample.num_rows / below.rows
        is_whole = sample is not None and sample.num_rows <= most
        return replace(estimate, sample=sample) if is_whole else estimate

    def _matched(self, node: Matches) -> Estimate:
        """The rows of members, from those that some sampled members have of the sampled rows."""
        rows, members = self.of(node.rows), self.of(node.members)
        if not rows.sample or not members.sample:
            return rows.of(node, node.expected_rows([rows, members]))
        some = members.sample.slice(0, _MOST_MEMBERS)
        matches = sum(_rows_of_member(rows.sample, member, node) for member in some.to_pylist())
        share = max(matches, 0.5) / (len(rows.sample) * len(some))
        return rows.of(node, rows.rows * members.rows * share)

    def _grouped(self, node: Node, groups: tuple[str, ...]) -> Estimate:
        below = self.of(node.inputs()[0])
        rows = min(below.distinct(groups), max(below.rows, 1)) if groups else 1.0
        return replace(below.of(node, rows), whole=rows)

    def _joined(self, node: Join) -> Estimate:
        left, right = self.of(node.left), self.of(node.right)
        if node.how in ("inner", "left", "single"):
            estimate = self._looked_up(node, left, right)
            if estimate is not None:
                return estimate
        return self._independent(node, left, right)

    def _looked_up(self, node: Join, left: Estimate, right: Estimate) -> Estimate | None:
        """The estimate from the partners of a sample of one side, if they can be looked up."""
        if left.sample is not None:
            partners = self._find(node.right, node.right_keys, left.sample.select(node.left_keys))
            if partners is not None:
                sample = _pairs(node, left.sample, partners)
                return self._of_pairs(node, left, sample)
        if right.sample is not None and node.how == "inner":
            partners = self._find(node.left, node.left_keys, right.sample.select(node.right_keys))
            if partners is not None:
                sample = _pairs(node, partners, right.sample)
                return self._of_pairs(node, right, sample)
        return None

    def _of_pairs(self, node: Join, root: Estimate, sample: pa.Table) -> Estimate:
        return replace(root, node=node, rows=_scaled(root, sample), sample=sample, values={})

    def _find(self, node: Node, names: Sequence[str], keys: pa.Table) -> pa.Table | None:
        """Rows of a node, without RANGE, among them all that have the values `keys` in `names`;
        None if they can't be looked up by a key, or only at a high price."""
        if self._tables_read(node) > _MOST_LOOKED_UP:
            return None
        if not names or any(is_nested(column.type) for column in keys.schema):
            return None
        if isinstance(_passed_on(node, ())[0], Source) and self._is_whole(node):
            sample = self.of(node).sample
            assert sample is not None
            return sample.drop_columns(RANGE)
        if isinstance(node, Source):
            named = dict(zip(node.read, node.names(), strict=True))
            key = [named.get(name) for name in self._samples.key(node.table)]
            if not all(name in names for name in key):
                return None
            chosen = keys.rename_columns(list(names)).select(key).drop_null()
            chosen = chosen.group_by(chosen.column_names, use_threads=False).aggregate([])
            return self._samples.find(node, chosen.rename_columns(self._samples.key(node.table)))
        if isinstance(node, STATELESS):
            base, below = _passed_on(node, names)
            rows = self._find(base, below, keys) if len(below) == len(names) else None
            if rows is None:
                return None
            numbered = rows.append_column(RANGE, pa.array(np.zeros(len(rows), np.int32)))
            result = self._samples.compute(node, base, numbered)
            return None if result is None else result.drop_columns(RANGE)
        if not isinstance(node, Join) or node.how not in ("inner", "left", "single"):
            return None
        own_names = _own_names_of_right(node)
        if set(names) <= set(node.left.names()):
            return self._with_partners(node, self._find(node.left, names, keys), from_left=True)
        if node.how == "inner" and set(names) <= set(own_names):
            right_rows = self._find(node.right, [own_names[name] for name in names], keys)
            return self._with_partners(node, right_rows, from_left=False)
        return None

    def _tables_read(self, node: Node) -> int:
        """How many times tables are read for a node, also through views."""
        for below in () if node.identity in self._read else node.walk():
            number = sum(self._read[input_node.identity] for input_node in below.inputs())
            self._read[below.identity] = max(number, 1)
        return self._read[node.identity]

    def _is_whole(self, node: Node) -> bool:
        """Whether the sample of a node's table has all rows, and the node has a sample."""
        source = self.of(_passed_on(node, ())[0])
        whole = source.sample is not None and source.sample.num_rows >= source.rows
        return whole and self.of(node).sample is not None

    def _with_partners(self, node: Join, rows: pa.Table | None, from_left: bool) -> pa.Table | None:
        if rows is None:
            return None
        keys, partner_keys = (node.left_keys, node.right_keys)[:: 1 if from_left else -1]
        other = node.right if from_left else node.left
        partners = self._find(other, partner_keys, rows.select(keys))
        if partners is None:
            return None
        return _pairs(node, rows, partners) if from_left else _pairs(node, partners, rows)

    def _independent(self, node: Join, left: Estimate, right: Estimate) -> Estimate:
        """The estimate by formula: the keys of one side are assumed to be among the other's."""
        kinds = [self._kinds(e, keys) for e, keys in _sides(node, left, right)]
        pairs = left.rows * right.rows / max(*kinds, 1)
        matched = min(1.0, right.distinct(node.right_keys) / max(kinds[0], 1))
        rows = {
            "inner": pairs,
            "left": max(pairs, left.rows),
            "full": max(pairs, left.rows, right.rows),
            "semi": left.rows * matched,
            "anti": left.rows * (1 - matched),
        }.get(node.how, left.rows)
        if node.how in ("semi", "anti", "existence"):
            if node.how != "existence":
                return left.of(node, rows, left.sample)
            return left.of(node, rows)
        of_left = left.of(node.left, min(left.rows, rows)).values
        of_right = right.of(node.right, min(right.rows, rows)).values
        names_in_join = {own_name: name for name, own_name in _own_names_of_right(node).items()}
        values = {**of_left, **{names_in_join[name]: count for name, count in of_right.items()}}
        whole = max(rows, left.whole * right.whole / max(*kinds, 1))
        return Estimate(node, rows, whole, None, values)

    def _kinds(self, side: Estimate, keys: Sequence[str]) -> float:
        """How many keys a side would have without filters."""
        return side.whole if self.is_unique(side.node, keys) else side.distinct(keys)


def _sides(
    node: Join, left: Estimate, right: Estimate
) -> tuple[tuple[Estimate, tuple[str, ...]], tuple[Estimate, tuple[str, ...]]]:
    return (left, node.left_keys), (right, node.right_keys)


def _scaled(root: Estimate, sample: pa.Table) -> float:
    """The number of rows that a sample stands for, which was computed from that of `root`; an empty
    sample counts as half a row."""
    assert root.sample is not None
    return _share(root.rows, sample, root.sample.num_rows)


def _share(rows: float, sample: pa.Table, sampled: int) -> float:
    if sampled == 0:
        return 0.0
    count = sample.num_rows or (0.5 if sampled < rows else 0)
    return float(rows * count / sampled)


def not_null(node: Filter) -> list[str] | None:
    """The columns whose NULLs a filter removes; None if it does anything else."""
    return not_null_columns(node.condition)


def _renamed(node: Node, base: Node, below: Estimate) -> Estimate:
    """The estimate of a stateless node without a sample: only columns that it passes on, perhaps by
    another name, have known values."""
    values = {}
    for name in node.names():
        name_below: str | None = name
        step = node
        while step is not base and name_below is not None:
            assert isinstance(step, STATELESS)
            name_below, step = _below(step, name_below), step.input
        values[name] = below.rows if name_below is None else below.distinct([name_below])
    return Estimate(node, below.rows, below.whole, None, values)


def _passed_on(node: Node, names: Sequence[str]) -> tuple[Node, list[str]]:
    """The node below stateless nodes, and the names there of the columns that it has."""
    below = list(names)
    while isinstance(node, STATELESS):
        below = [name_below for name in below if (name_below := _below(node, name)) is not None]
        node = node.input
    return node, below


def _below(node: Node, name: str) -> str | None:
    """The name of a stateless node's column in its input; None if the node computes it."""
    if isinstance(node, Project):
        below = column_of(node.expressions[node.names().index(name)])
        return below if below in node.input.names() else None
    if isinstance(node, Generate):
        return name if name in node.kept else None
    return name


def _own_names_of_right(node: Join) -> dict[str, str]:
    """The names that the right side's columns have there, by their names in the join."""
    return dict(zip(node.names()[len(node.left.columns) :], node.right.names(), strict=True))


def _pairs(node: Join, left: pa.Table, right: pa.Table) -> pa.Table:
    """Rows of samples of both sides with equal keys; with RANGE, if one has it."""
    keys = [f"\0{i}" for i in range(len(node.left_keys))]

    def numbered(rows: pa.Table, names: Sequence[str], side: str) -> pa.Table:
        columns = [rows[name] for name in names]
        places = pa.array(np.arange(len(rows)))
        return pa.table([*columns, places], [*keys, side])

    how = "inner" if node.how == "inner" else "left outer"
    both = numbered(left, node.left_keys, "l").join(
        numbered(right, node.right_keys, "r"), keys, join_type=how, use_threads=False
    )
    left, right = left.take(both["l"]), right.take(both["r"])
    of_right = zip(node.names()[len(node.left.columns) :], node.right.names(), strict=True)
    columns = {name: left[name] for name in node.left.names()}
    columns |= {name: right[own] for name, own in of_right}
    for rows in (left, right):
        columns |= {name: rows[name] for name in rows.column_names if name == RANGE}
    return pa.table(columns)


def _rows_of_member(rows: pa.Table, member: Mapping[str, object], node: Matches) -> int:
    """How many rows a member has."""
    has = np.ones(len(rows), np.bool_)
    for bound in node.bounds:
        has &= bound.holds(rows, member)
    return int(has.sum())
