"""EXPLAIN of a view that is not created yet: its document with estimates of its state and cost,
and these as cells of the tree and lines around it.

Operators that other views have already need no more state and no more time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from everview.plan.cost import VIEW, Constants, PlanCost, Rates, estimated, of_operator
from everview.readable import about, readable_bytes, readable_seconds

TITLES = ("state rows", "bytes", "rows in", "reads", "writes", "time")
_WORK = ("rows_in", "reads", "writes", "seconds")
Document = dict[str, Any]


def with_estimates(
    document: Document, cost: PlanCost, constants: Constants, engine: str, rates: Rates
) -> Document:
    """The document of EXPLAIN with estimates, of the whole and of each operator."""
    shared: set[str] = set()

    def with_part(node: Document) -> Document:
        name = node.get("identity", VIEW)
        if node["shared_with"]:
            shared.add(name)
        part = of_operator(cost, name, constants) if name in cost.sizes else None
        return {**node, "estimate": part, "inputs": list(map(with_part, node["inputs"]))}

    plan = with_part(document["plan"])
    estimate = {"engine": engine, **estimated(cost, constants, rates, shared)}
    return {**document, "estimate": estimate, "plan": plan}


def heading(document: Document) -> Iterator[str]:
    """The estimates of the whole, as lines above the tree."""
    estimate = document["estimate"]
    new = estimate["new_state"]
    more = " more" if estimate["state"] != new else ""
    seconds = readable_seconds(_mix(estimate["per_1000_changes"].values())["seconds"])
    yield (
        f"expected: {about(new['rows'])} state rows{more}, {readable_bytes(new['bytes'])}; on "
        f"{estimate['engine'].capitalize()} a load of {readable_seconds(estimate['load_seconds'])},"
        f" epochs of {readable_seconds(estimate['epoch_seconds'])} and {seconds} for 1,000 changes"
    )


def footer(document: Document) -> Iterator[str]:
    """What the estimates rest on, as lines below the tree."""
    estimate = document["estimate"]
    recompute, epochs = estimate["recompute"], estimate["rates"]["epochs"]
    period = f"as in the last {epochs} epochs" if epochs > 1 else "as in the last epoch"
    yield (
        "rows in, reads, writes and time: for 1,000 changes, in the tree of all tables, mixed "
        f"{period if epochs else 'by their rows, as no epochs are known'}"
    )
    if recompute["share"] is not None and recompute["share"] < 1:
        yield (
            f"recomputing would be cheaper from {about(recompute['changes'])} changes at once, "
            f"{recompute['share']:.0%} of the rows of its tables"
        )
    else:
        yield "recomputing would not be cheaper even if all rows of its tables changed at once"
    measured_on = estimate["constants"]["measured"]
    yield (
        f"times by constants measured on {measured_on}"
        if measured_on
        else "times by default constants; everview calibrate DB measures those of this machine"
    )


def cells(node: Document, shares: dict[str, float]) -> tuple[str, ...]:
    """The cells of a node under TITLES: of a shared operator only its state, as it is."""
    if node["state"]:
        state = node["state"]
        return (f"{state['rows']:,}", readable_bytes(state["bytes"]), *("",) * len(_WORK))
    part = node["estimate"]
    if part is None:
        return ("",) * len(TITLES)
    by_table = part["per_1000_changes"]
    costs_of_mix = _mix({**costs, "share": shares[table]} for table, costs in by_table.items())
    return (
        about(part["state"]["rows"]),
        readable_bytes(part["state"]["bytes"]),
        *_work(costs_of_mix),
    )


def totals(estimate: Document) -> list[tuple[str, tuple[str, ...]]]:
    """Lines at the end of the tree: 1,000 changes of each table, and of all."""
    tables = estimate["per_1000_changes"]
    lines = [
        (f"1,000 changes of {table}, {costs['share']:.0%} of all", ("", "", *_work(costs)))
        for table, costs in sorted(tables.items(), key=lambda item: -item[1]["share"])
    ]
    total = ("", "", *_work(_mix(tables.values())))
    return [*lines, ("1,000 changes of all tables", total)] if len(lines) > 1 else lines


def _mix(tables: Iterable[Document]) -> Document:
    """The costs of changes of all tables, each table with its share of the changes."""
    all_costs = list(tables)
    return {name: sum(costs["share"] * costs[name] for costs in all_costs) for name in _WORK}


def _work(costs: Document) -> tuple[str, ...]:
    *counts, seconds = (costs[name] for name in _WORK)
    return (*map(about, counts), readable_seconds(seconds))
