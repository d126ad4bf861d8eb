"""The cost of a view: estimated from samples of tables, from the changes in their logs, and from
the seconds that `everview calibrate` measured."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from everview.catalog import CONSTANTS, VIEWS, ViewRecord
from everview.engines.engine import Engine
from everview.estimate.sampler import Sampler
from everview.explain.work import recent_changes
from everview.plan.cost import DEFAULTS, Constants, PlanCost, Rates, cost_of
from everview.plan.estimates import Estimates
from everview.plan.facts import Costs
from everview.plan.flows import UPDATED
from everview.plan.nodes import Node, Source
from everview.programs.reading import Changes

if TYPE_CHECKING:
    from everview.stores.base import Store

_NEWEST_CHANGES = 1_000  # of a table, to look at
_FEW_ROWS = 1_000


def constants_of(store: Store, engine: str) -> Constants:
    """The constants of an engine: calibrated, or by default."""
    known = store.catalog.get(CONSTANTS[engine])
    return DEFAULTS[engine] if known is None else Constants(**known.values)


def cost_of_view(store: Store, planner: Engine, view: ViewRecord) -> PlanCost:
    """The cost of a view, whether or not it is in the catalog."""
    plan = view.plan
    estimates = Estimates(Sampler(store, planner.session))
    each = {table: rows_of_change(store, plan, table) for table in plan.tables()}
    return cost_of(plan, view.key, estimates, each, len(view.shards))


def costs_for(
    store: Store, planner: Engine, engine: str, plan: Node, shards: int, group: str
) -> Costs | None:
    """The costs by which rules choose between plans of a view in a group; the plan may read views
    too. None if its tables are so small that no plan is better than another."""
    tables = sorted(plan.tables() & set(store.tables()))
    if sum(region.rows for table in tables for region in store.status(table)) < _FEW_ROWS:
        return None
    views = [view for view in store.catalog.all(VIEWS).values() if view.group == group]
    return Costs(
        Estimates(Sampler(store, planner.session)),
        constants_of(store, engine),
        rates_of(store, tables).shares,
        {table: rows_of_change(store, plan, table) for table in tables},
        frozenset(name for view in views if view.is_live for name in view.states),
        shards,
    )


def rates_of(store: Store, tables: Iterable[str]) -> Rates:
    """How changes are spread over tables: as in the last epochs. In tables that no view follows,
    the same share of rows is assumed to change as in the others together; before any epoch, the
    same in all."""
    names = sorted(tables)
    group = _follower_of(store, names)
    counts, epochs = recent_changes(store, names, group)
    rows = {table: sum(region.rows for region in store.status(table)) for table in names}
    positions = store.catalog.epoch_of(group).positions
    followed = [table for table in names if table in positions]
    known = sum(rows[table] for table in followed)
    often = sum(counts.values()) / known if epochs and known else 1.0
    weights = {
        table: counts[table] if epochs and table in followed else rows[table] * often
        for table in names
    }
    total = sum(weights.values())
    shares = {table: weights[table] / total if total else 1 / len(names) for table in names}
    return Rates(shares, epochs)


def _follower_of(store: Store, tables: Collection[str]) -> str:
    """The group that follows most of the tables; the main one, if no other follows more."""
    groups, catalog = store.catalog.groups(), store.catalog
    return max(groups, key=lambda group: len(catalog.epoch_of(group).positions.keys() & {*tables}))


def rows_of_change(store: Store, plan: Node, table: str) -> float:
    """How many rows a change of a table has in a plan's delta, from its newest changes: an update
    that the plan sees has two. Without changes since a view follows the table, all are assumed to
    be such updates."""
    counts, _ = recent_changes(store, [table], _follower_of(store, [table]))
    number = min(counts[table], _NEWEST_CHANGES)
    if not number:
        return UPDATED
    sources = [node for node in plan.walk() if isinstance(node, Source) and node.table == table]
    names = sorted({name for source in sources for name in source.read})
    read = Source((), table, tuple(names))
    logs = store.log(table)
    changes = rows = 0
    for region, log in logs.items():
        after = max(log.first - 1, log.last - max(1, number // len(logs)))
        for batch in store.changes(table, region, after, None, names):
            changes += batch.num_rows
            rows += sum(map(len, Changes.of(batch, names).deltas(read)))
    return rows / changes if changes else UPDATED
