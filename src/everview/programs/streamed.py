"""Loads of views that add up the rows of tables: each table is read once for all of them.

Their first operators are aggregates of rows that filters and projections make of a table. A chunk
of the table goes through all views and becomes few rows, one for each group; the chunks together
are the input of the operators, in the shards of this process (`direct`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa

from everview.catalog import ViewRecord
from everview.compute import EngineNeeded
from everview.operators.registry import operator_for
from everview.plan.nodes import Filter, Node, Project, Source
from everview.programs.applying import named_delta, operator_of
from everview.programs.direct import Direct, Placed, expressed, is_direct, is_small, seed_of
from everview.programs.pacing import Pacer
from everview.programs.reading import Rows, names_read, parts_of
from everview.programs.step import Step
from everview.stores import shared_store

MOST_ROWS = 2_000_000  # of all tables; with more, several cores are faster, and can go on later
_CHUNK_ROWS = 1 << 17


def load(
    views: Sequence[ViewRecord], step: Step, states: Mapping[str, str]
) -> tuple[int, list[ViewRecord]]:
    """Load the views for which that is possible here; returns how many rows they have, and the
    other views. Raises what `direct.run` leaves to the engine."""
    if not is_small(step, MOST_ROWS):
        return 0, list(views)
    streamed = [view for view in views if is_direct(view) and first_aggregates(view.plan)]
    nodes = {node.identity: node for view in streamed for node in first_aggregates(view.plan)}
    partials: dict[str, list[pa.Table]] = {identity: [] for identity in nodes}
    by_table: dict[str, list[Node]] = {}
    for node in nodes.values():
        by_table.setdefault(_source(node).table, []).append(node)
        if node.has_row_of_nothing():
            seed = seed_of(node.inputs()[0])
            partials[node.identity].append(operator_of(node.own_text).partial(seed))
    room = MOST_ROWS
    for table, readers in by_table.items():
        for rows in _chunks(step, table, [_source(node) for node in readers]):
            for node in readers:
                if (delta := _delta(node.inputs()[0], rows)) is not None:
                    added_up = operator_of(node.own_text).partial(delta.combine_chunks())
                    partials[node.identity].append(added_up)
                    room -= added_up.num_rows
                    if room < 0:
                        raise EngineNeeded("too many groups for one process")
    tables = {i: pa.concat_tables(parts) if parts else None for i, parts in partials.items()}
    direct = Direct(step, states, streamed, tables)
    names = {view.name for view in streamed}
    states_of_step = shared_store(step.address, readonly=False).states
    loaded = states_of_step.together(lambda: sum(map(direct.sink, streamed)))
    return loaded, [view for view in views if view.name not in names]


@lru_cache(4096)
def first_aggregates(plan: Node) -> tuple[Node, ...]:
    """The operators that read tables, if all of them can get their rows in parts; else none."""
    first: list[Node] = []
    for node in plan.walk():
        if not node.is_operator or not any(map(_reads_table, node.inputs())):
            continue
        _, lowest = _chain(node.inputs()[0])
        if not isinstance(lowest, Source) or operator_for(node).partial_columns is None:
            return ()
        first.append(node)
    return () if _reads_table(plan) else tuple(first)


def _reads_table(node: Node) -> bool:
    """Whether rows of a table reach a node without an operator between."""
    return any(isinstance(below, Source) for below in node.walk(lambda below: below.is_operator))


def _chain(node: Node) -> tuple[list[Filter | Project], Node]:
    """The filters and projections from a node downwards, and the node below them."""
    chain: list[Filter | Project] = []
    while isinstance(node, Filter | Project):
        chain.append(node)
        node = node.input
    return chain, node


def _source(node: Node) -> Source:
    _, lowest = _chain(node.inputs()[0])
    assert isinstance(lowest, Source)
    return lowest


def _chunks(step: Step, table: str, sources: Sequence[Source]) -> Iterator[Rows]:
    """All rows of a table, with the columns that some sources need, in large pieces."""
    names = list(dict.fromkeys(name for source in sources for name in names_read(source)))
    pacers = [Pacer(step, f"{identity} 0") for identity in {s.identity for s in sources}]
    parts: list[Rows] = []
    for part in parts_of(step, table, names, list(step.end[table])):
        assert isinstance(part, Rows)
        for pacer in pacers:
            pacer.read(part.number)
        parts.append(part)
        if sum(one.number for one in parts) >= _CHUNK_ROWS:
            yield _together(parts, names)
            parts = []
    if parts:
        yield _together(parts, names)
    for pacer in pacers:
        pacer.note()


def _together(parts: Sequence[Rows], names: Sequence[str]) -> Rows:
    columns = {name: pa.concat_arrays([part.columns[name] for part in parts]) for name in names}
    return Rows(columns, sum(part.number for part in parts))


def _delta(node: Node, rows: Rows) -> pa.Table | None:
    """The rows of a node that follow from rows of its table; None if there are none."""
    chain, source = _chain(node)
    assert isinstance(source, Source)
    (delta,) = rows.deltas(source)
    placed = Placed(named_delta(delta, source.columns))
    for above in reversed(chain):
        if not placed.delta.num_rows:
            return None
        placed = expressed(above, placed)
    return placed.delta if placed.delta.num_rows else None
