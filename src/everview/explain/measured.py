"""EXPLAIN ANALYZE: the document of EXPLAIN with the work of the last epochs of the view, and that
as cells of the tree.

A stateless node has no numbers: it is part of the engine's program, which is measured as a whole.
A source has the number of changes of its table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from everview.plan.nodes import Node, Source
from everview.readable import readable_seconds

if TYPE_CHECKING:
    from everview.explain.work import Analysis, OperatorWork
    from everview.stores.work import Work

TITLES = ("rows in", "rows out", "reads", "writes", "time", "share", "skew")
_PER = 1_000  # changes
Document = dict[str, Any]


def with_analysis(document: Document, plan: Node, work_of_view: Analysis | None) -> Document:
    """The document with the work of the view's epochs; None if it was not loaded yet."""
    if work_of_view is None:
        return {**document, "analysis": None}
    tables = {node.identity: node.table for node in plan.walk() if isinstance(node, Source)}
    changes, total = sum(work_of_view.changes.values()), work_of_view.whole
    analysis = {
        "epochs": work_of_view.epochs,
        "changes": changes,
        "load": _costs(work_of_view.load),
        "total": _costs(total),
        "per_1000_changes": _costs(total, _PER / changes) if changes else None,
    }

    def with_work(node: Document) -> Document:
        identity = node.get("identity", "view")
        work: Document | None = None
        if identity in tables:
            work = {"changes": work_of_view.changes[tables[identity]]}
        elif identity in work_of_view.operators:
            work = _work(
                work_of_view.operators[identity], total.nanoseconds, one_shard=node["by"] == []
            )
        return {**node, "work": work, "inputs": list(map(with_work, node["inputs"]))}

    return {**document, "analysis": analysis, "plan": with_work(document["plan"])}


def _work(operator: OperatorWork, nanoseconds: int, one_shard: bool) -> Document:
    total = operator.whole
    return {
        **_all(total),
        "share": total.nanoseconds / nanoseconds if nanoseconds else None,
        "skew": None if one_shard else operator.skew,
        "load": _all(operator.load),
    }


def _all(work: Work) -> Document:
    return {"rows_in": work.rows_in, "rows_out": work.rows_out, **_costs(work)}


def _costs(work: Work, times: float = 1) -> Document:
    """The numbers that may be added up over operators."""
    return {
        "reads": work.reads * times,
        "writes": work.writes * times,
        "seconds": work.nanoseconds * times / 1e9,
    }


def heading(document: Document) -> Iterator[str]:
    """Which epochs were analyzed, as lines above the tree."""
    analysis = document["analysis"]
    if analysis is None:
        yield "analyzed: nothing, as it was not loaded yet"
    elif not analysis["epochs"] and document["status"] == "stopped":
        yield "analyzed: no epoch, as those before it was stopped are not kept any more"
    elif not analysis["epochs"]:
        yield "analyzed: no epoch, as its tables did not change since it was loaded"
    else:
        epochs = analysis["epochs"]
        period = f"epoch {epochs[0]}"
        if len(epochs) > 1:
            period = f"{len(epochs)} epochs, {epochs[0]} to {epochs[-1]}"
        changes = f"{analysis['changes']:,} change{'s' * (analysis['changes'] != 1)}"
        load = readable_seconds(analysis["load"]["seconds"])
        yield f"analyzed: {period}, with {changes} of its tables; loading took its operators {load}"
        yield "Spark runs its nodes as one program: they have no numbers of their own"


def cells(node: Document) -> tuple[str, ...]:
    """The cells of a node under TITLES; a source's rows in are the changes of its table."""
    work = node["work"]
    if work is None:
        return ("",) * len(TITLES)
    if "changes" in work:
        return (f"{work['changes']:,}", *("",) * (len(TITLES) - 1))
    share = "" if work["share"] is None else f"{work['share']:.0%}"
    skew = "" if work["skew"] is None else f"{work['skew']:.1f}x"
    return f"{work['rows_in']:,}", f"{work['rows_out']:,}", *_readable(work), share, skew


def totals(analysis: Document) -> list[tuple[str, tuple[str, ...]]]:
    """Lines below the tree, each with its cells."""
    lines = {"total": analysis["total"], f"for {_PER:,} changes": analysis["per_1000_changes"]}
    return [(label, ("", "", *_readable(costs), "", "")) for label, costs in lines.items()]


def _readable(costs: Document) -> tuple[str, str, str]:
    time = readable_seconds(costs["seconds"])
    return f"{costs['reads']:,.0f}", f"{costs['writes']:,.0f}", time
