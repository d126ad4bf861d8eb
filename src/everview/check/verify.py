"""Verify: recompute a view at its epoch, with Spark from the store, and compare as multisets.

Spark is given the view's query; or, where SQL leaves the answer open (`first`, rows that tie in a
window or for a LIMIT that can't be seen) or doubles cancel out, the view's plan, without any state.
Two differences are none: sums of doubles, which are exact in a view and depend on the order of rows
in Spark, may differ in their last digits; and of rows that tie for the last places of an ORDER BY
with LIMIT, Spark may have taken others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from everview.advice import how_to_maintain
from everview.catalog import Positions
from everview.engines.engine import Engine, Query
from everview.errors import NotLoaded
from everview.named import open_view
from everview.plan.nodes import Node, Project, TopK
from everview.programs.programs import recompute
from everview.results.result import count_rows
from everview.stores.base import Store
from everview.view import View

Row = tuple[str, ...]
_CLOSE = 1e-9
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """Whether a view equals its recomputation; rows that only one of them has, with counts."""

    view: str
    epoch: int
    rows: int
    missing: dict[Row, int]
    extra: dict[Row, int]

    @property
    def equal(self) -> bool:
        return not self.missing and not self.extra

    def __str__(self) -> str:
        if self.equal:
            return f"{self.view}: equal at epoch {self.epoch}, {count_rows(self.rows)}"
        missing, extra = sum(self.missing.values()), sum(self.extra.values())
        return (
            f"{self.view}: DIFFERENT at epoch {self.epoch}: {count_rows(missing)} missing, "
            f"{count_rows(extra)} too many"
        )


def verify(store: Store, spark: Engine, name: str) -> Verdict:
    """Compare at the epoch that is committed now, or that the view was stopped at.

    Raises `NotLoaded` if the view has no rows yet, and what Spark's own evaluation raises.
    """
    view = open_view(store, name)
    epoch, positions, rows = _pinned_rows(store, view)
    inner = _inner(store, view)
    if view.is_open or _has_no_query(view, inner):
        answer = recompute(spark.session, store.address, view.plan, positions)
    else:
        inner_queries = [(alias, _query(inner_view)) for alias, inner_view in inner]
        answer = spark.select_at(store.address, _query(view), inner_queries, positions)
    missing, extra = _differences(answer, rows)
    if (missing or extra) and (_hides_ties(view) or _cancelled_out(missing, extra, rows.schema)):
        answer = recompute(spark.session, store.address, view.plan, positions)
        missing, extra = _differences(answer, rows)
    if _tie(missing, extra, view, rows.num_rows):
        missing, extra = Counter(), Counter()
    return Verdict(view.name, epoch, rows.num_rows, dict(missing), dict(extra))


def _differences(expected: pa.Table, rows: pa.Table) -> tuple[Counter[Row], Counter[Row]]:
    """The rows that only one of two tables has."""
    view_rows, expected_rows = Counter(_rows(rows)), Counter(_rows(expected))
    missing, extra = expected_rows - view_rows, view_rows - expected_rows
    _forgive_last_digits(missing, extra, rows.schema)
    return missing, extra


def _has_no_query(view: View, inner: list[tuple[str, View]]) -> bool:
    """Whether the queries can't be run: they name tables that the answer does not depend on, as in
    WHERE false, which may have been dropped since; or two views by one name, as after renames."""
    views = [view, *(inner_view for _, inner_view in inner)]
    unread_tables = [set(view.named_tables) - set(view.tables) for view in views]
    return any(unread_tables) or len({alias for alias, _ in inner}) < len(inner)


def _query(view: View) -> Query:
    return Query(view.plain_sql, view.table_columns, view.schema.names)


def _inner(store: Store, view: View) -> list[tuple[str, View]]:
    """The views that a view reads, with its alias for each: each once, and after those that it
    reads itself."""
    inner_views: dict[tuple[str, str], View] = {}

    def add(view: View) -> None:
        for alias, name in view.views.items():
            if (alias, name) not in inner_views:
                inner = open_view(store, name)
                add(inner)
                inner_views[alias, name] = inner

    add(view)
    return [(alias, inner) for (alias, _), inner in inner_views.items()]


def _pinned_rows(store: Store, view: View) -> tuple[int, Positions, pa.Table]:
    """An epoch, the positions it has of the view's tables, and the view's rows as of it."""
    if not view.is_loaded:
        remedy = view.error or f"{how_to_maintain()} loads it"
        raise NotLoaded(f"view {view.name} has no rows to verify; it is {view.status}: {remedy}")
    with closing(store.pins.pin([view.name], [])) as pin:
        pinned = view.at(pin)
        positions = pinned.positions or pin.catalog.positions
        return pinned.epoch, {t: positions[t] for t in view.tables}, pinned.to_arrow()


def _rows(table: pa.Table) -> list[Row]:
    columns = [map(_cell, column.to_pylist()) for column in table.columns]
    return list(zip(*columns, strict=True))


def _cell(value: Any) -> str:
    return str(in_one_order(value) if isinstance(value, list | dict) else value)


def in_one_order(value: Any) -> Any:
    """A nested value whose maps, which are lists of pairs, are sorted."""
    if isinstance(value, dict):
        return {name: in_one_order(part) for name, part in value.items()}
    if not isinstance(value, list | tuple):
        return value
    parts = list(map(in_one_order, value))
    is_map = isinstance(value, list) and all(isinstance(part, tuple) for part in value)
    return sorted(parts, key=str) if is_map else parts


def _cancelled_out(missing: Counter[Row], extra: Counter[Row], schema: pa.Schema) -> bool:
    """Whether rows differ only by so little as Spark's sums lose where large terms cancel out."""
    remaining = Counter(missing), Counter(extra)
    _forgive_last_digits(*remaining, schema, _TOLERANCE)
    return not any(remaining)


def _forgive_last_digits(
    missing: Counter[Row], extra: Counter[Row], schema: pa.Schema, tolerance: float = 0.0
) -> None:
    """Remove pairs of rows that differ only in the last digits of doubles, or by no more than the
    tolerance."""
    floats = [i for i, field in enumerate(schema) if pa.types.is_floating(field.type)]
    if not floats:
        return
    alike: defaultdict[Row, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((missing, extra)):
        for row in sorted(rows.elements(), key=lambda row: [float_of(row[i]) for i in floats]):
            alike[tuple(cell for i, cell in enumerate(row) if i not in floats)][side].append(row)
    for missing_rows, extra_rows in alike.values():
        for missing_row, extra_row in zip(missing_rows, extra_rows, strict=False):
            cells = [(float_of(missing_row[i]), float_of(extra_row[i])) for i in floats]
            if all(
                a == b or math.isclose(a, b, rel_tol=_CLOSE, abs_tol=tolerance) for a, b in cells
            ):
                missing[missing_row] -= 1
                extra[extra_row] -= 1
    for rows in (missing, extra):
        for row in [row for row, count in rows.items() if not count]:
            del rows[row]


def float_of(cell: str) -> float:
    """A cell as a number that sorts: NULL before all others, NaN after them."""
    if cell == "None":
        return -math.inf
    return math.inf if cell == "nan" else float(cell)


def _hides_ties(view: View) -> bool:
    """Whether rows may tie for the last places of a LIMIT and nobody can see it: within the view,
    or in an order by what it doesn't show."""
    limits = [node for node in view.plan.walk() if isinstance(node, TopK)]
    return bool(limits) and (limits != [_limit(view)] or len(view.order) < len(limits[0].order))


def _limit(view: View) -> TopK | None:
    """The LIMIT that a view ends with."""
    node: Node = view.plan
    while isinstance(node, Project):
        node = node.input
    return node if isinstance(node, TopK) else None


def _tie(missing: Counter[Row], extra: Counter[Row], view: View, count: int) -> bool:
    """Whether all rows that differ tie, in the whole order of a view's LIMIT, for its last places,
    which there are enough rows for, or with an OFFSET for its first."""
    limit, order = _limit(view), view.order
    if limit is None or len(order) < len(limit.order):
        return False
    places = [view.plan.names().index(by.column) for by in order]
    ties = [Counter[Row](), Counter[Row]()]
    for counts, rows in zip(ties, (missing, extra), strict=True):
        for row, number in rows.items():
            counts[tuple(row[i] for i in places)] += number
    ends = (count >= limit.limit) + (limit.offset > 0)
    return ties[0] == ties[1] and len(ties[0]) <= ends
