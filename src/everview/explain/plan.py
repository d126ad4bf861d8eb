"""A plan as a person reads it: which nodes there are, in which round and where each runs, how it
is maintained, and what it keeps.

`explain` gives a document, all of it plain data; `as_text` draws it as a tree, the view on top.
A node with one input stands right above it, and one with several above the branches of its inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from everview.catalog import MAIN, title_of
from everview.explain import expected
from everview.explain import measured as analyze
from everview.plan.distribution import (
    UNNAMED,
    Distribution,
    distribution,
    keyed_by,
    lies,
    shards_by,
    shuffles,
)
from everview.plan.nodes import Node
from everview.plan.nodes.base import BY_GROUP, IN_FULL, INCREMENTAL, REREADS
from everview.readable import readable_bytes, readable_seconds

WIDTH = 120
_STATELESS, _OPERATOR = "Spark", "operator"
_WORST = (IN_FULL, BY_GROUP)
_OWN_WIDTH = 36  # of a label, at least, however deep the tree
_MOST_OF_PLACE = 40
_STATE_TITLES = ("state rows", "bytes")
_PLAIN = re.compile(r"`(\w+)`")

# What a node's state holds: (rows, bytes on disk); None if there is none yet.
Size = Callable[[Node | None], tuple[int, int] | None]
Document = dict[str, Any]


def explain(
    plan: Node,
    key: tuple[str, ...],
    size: Size = lambda node: None,
    shared: Callable[[Node], list[str]] = lambda node: [],
) -> Document:
    """The document of a view with this plan and key.

    `size` is asked for every operator, and with None for the view's own rows; `shared` says which
    other views use an operator's state.
    """
    placement = keyed_by(plan, key)
    plan_document = _document(plan, size, shared, {})
    top = {
        "kind": "view",
        "label": "view",
        "copied": False,
        "again": False,
        "round": plan_document["round"] + (not lies(plan, placement)),
        "by": _names(placement),
        "place": _place(plan, placement),
        "runs": _OPERATOR,
        "maintained": INCREMENTAL,
        "state": _state(size(None)),
        "shared_with": [],
        "inputs": [plan_document],
    }
    states = {part["identity"]: part["state"] for part in _parts(plan_document) if part["state"]}
    sizes: list[Any] = [*states.values(), *([top["state"]] if top["state"] else [])]
    maintenance = {p["identity"]: p["maintained"] for p in _parts(plan_document)}
    worst = next((way for way in _WORST if way in maintenance.values()), INCREMENTAL)
    rereading = list(maintenance.values()).count(REREADS)
    exception = f", but {rereading} of its operators may re-read" if rereading else ""
    return {
        "key": list(key),
        "rounds": top["round"],
        "maintained": worst + exception,
        "state": {unit: sum(size[unit] for size in sizes) for unit in ("rows", "bytes")},
        "plan": top,
    }


def _document(
    node: Node,
    size: Size,
    shared: Callable[[Node], list[str]],
    documents: dict[str, Document],
    is_copied: bool = False,
) -> Document:
    """The document of a node. A part with operators that comes again has no inputs: they are where
    it came first."""
    if node.identity in documents:
        return {**documents[node.identity], "copied": is_copied, "again": True, "inputs": []}
    is_operator = node.is_operator
    input_placements = shards_by(node) if is_operator else (None,) * len(node.inputs())
    inputs = [
        _document(input_node, size, shared, documents, is_operator and by is None)
        for input_node, by in zip(node.inputs(), input_placements, strict=True)
    ]
    by = input_placements[0] if is_operator else distribution(node)
    document = {
        "kind": node.kind,
        "label": _PLAIN.sub(r"\1", node.label()),
        "identity": node.identity,
        "round": max((input_["round"] for input_ in inputs), default=1) + shuffles(node),
        "by": _names(by),
        "place": _place(node.inputs()[0], by) if is_operator else None,
        "copied": is_copied,
        "again": False,
        "runs": _OPERATOR if is_operator else _STATELESS,
        "maintained": node.maintenance(),
        "state": _state(size(node)) if is_operator else None,
        "shared_with": shared(node) if is_operator else [],
        "inputs": inputs,
    }
    if is_operator or any(input_["identity"] in documents for input_ in inputs):
        documents[node.identity] = document
    return document


def _names(placement: Distribution) -> list[str] | None:
    if placement is None or placement == UNNAMED:
        return None
    return [min(place) for place in placement]


def _place(node: Node, placement: Distribution) -> str:
    if placement == UNNAMED:
        return "where it lies"
    names = _names(placement) or []
    if len(names) > 1 and set(names) == set(node.names()):
        return "by whole row"
    return f"by {', '.join(names)}" if names else "one shard"


def _state(size: tuple[int, int] | None) -> Document | None:
    return None if size is None else {"rows": size[0], "bytes": size[1]}


def _parts(document: Document) -> Iterator[Document]:
    yield document
    for input_ in document["inputs"]:
        yield from _parts(input_)


def as_text(document: Document, width: int = WIDTH) -> str:
    """The document as lines of about `width` columns; only the document has long labels in full.

    If epochs were analyzed, nodes show the work of those in place of their state.
    """
    lines = [*_header(document), ""]
    tree_lines = list(_draw(document["plan"], "", ""))
    titles, cells_of, total_lines = _numbers(document)
    cells = [("round", "runs in", *titles)]
    cells += [
        (
            str(line.node["round"]),
            _where(line.node, brief=titles != _STATE_TITLES),
            *cells_of(line.node),
        )
        for line in tree_lines
    ]
    cells += [("", "", *sums) for _, sums in total_lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    room = width - sum(widths) - 2 * len(widths)
    trees = [line.before + _cut(line.label, room - len(line.before)) for line in tree_lines]
    trees = ["plan", *trees, *(label for label, _ in total_lines)]
    wide = max(map(len, trees))
    all_notes = [[], *(line.notes for line in tree_lines), *([] for _ in total_lines)]
    for tree, (number, where, *rest), notes in zip(trees, cells, all_notes, strict=True):
        line = f"{number:>{widths[0]}}  {tree:<{wide}}  {where:<{widths[1]}}"
        numbers = [f"  {cell:>{room}}" for cell, room in zip(rest, widths[2:], strict=True)]
        lines.append("".join([line, *numbers]).rstrip())
        lines += [" " * (widths[0] + 2) + note for note in notes]
    footer = ["", *expected.footer(document)] if "estimate" in document else []
    return "\n".join([*lines, *footer])


def _numbers(
    document: Document,
) -> tuple[tuple[str, ...], Callable[[Document], tuple[str, ...]], list[tuple[str, Any]]]:
    """The columns beside the nodes: their titles, the cells of a node, and lines at the end."""
    if (document.get("analysis") or {}).get("epochs"):
        return analyze.TITLES, analyze.cells, analyze.totals(document["analysis"])
    if "estimate" in document:
        estimate = document["estimate"]
        shares = {
            table: changes["share"] for table, changes in estimate["per_1000_changes"].items()
        }
        cells = partial(expected.cells, shares=shares)
        return expected.TITLES, cells, expected.totals(estimate)
    return _STATE_TITLES, _state_cells, []


def _header(document: Document) -> Iterator[str]:
    status = document.get("status", "not created")
    group = document.get("group", title_of(MAIN))
    of_group = "" if group == title_of(MAIN) else f" of group {group}"
    descriptions = {
        "live": f"live, at epoch {document.get('epoch')}{of_group}",
        "new": f"new, to be loaded when it is first maintained{of_group and f', in group {group}'}",
        "stopped": f"stopped, at epoch {document.get('epoch')}{of_group}: {document.get('error')}",
    }
    yield f"view {document.get('view', '')}: {descriptions.get(status, status)}"
    yield f"key: {', '.join(document['key']) or 'none, it has one row'}"
    if status == "live" and document.get("error"):
        yield f"not replaced: {document['error']}"
    if document.get("order"):
        yield f"order of reading: {', '.join(document['order'])}"
    state = document["state"]
    rows, size = f"{state['rows']:,}", readable_bytes(state["bytes"])
    state_text = f"{rows} state rows, {size} on disk"
    if status == "not created":
        shared_text = f"{rows} rows of its state ({size}) are there already"
        state_text = shared_text if state["bytes"] else "no state yet"
    rounds = f"{document['rounds']} round{'s' * (document['rounds'] > 1)}"
    yield f"{rounds}, {state_text}; maintained: {document['maintained']}"
    if "alike" in document:
        yield from _alike(document)
    if "analysis" in document:
        yield from analyze.heading(document)
    if "estimate" in document:
        yield from expected.heading(document)


def _alike(document: Document) -> Iterator[str]:
    """With how many views like it a view is maintained, and why."""
    alike = document["alike"]
    values = ", ".join(f"{name} = {value}" for name, value in document["values"].items())
    together, apart = (readable_seconds(alike[how]) for how in ("together", "apart"))
    yield (
        f"maintained together with views that differ in constants, {alike['members']:,} in all; "
        f"here {values}"
    )
    yield (
        f"1,000 changes were expected to take {together} for {alike['views']:,} such views together"
        f", and {apart} apart"
    )


@dataclass(frozen=True)
class _Line:
    """A node in the tree: the branches before it, its label, and the notes under it."""

    node: Document
    before: str
    label: str
    notes: list[str]


def _draw(node: Document, before: str, indent: str) -> Iterator[_Line]:
    """The lines of a node and of its inputs: the first begins with `before`, others with `indent`
    or more."""
    if node["again"]:
        brief_node = {**node, "state": None, "work": None, "estimate": None}
        yield _Line(brief_node, before, node["label"], [f"{indent}· as above"])
        return
    *first_inputs, last_input = node["inputs"] or [None]
    bar = indent + "│  " * bool(first_inputs)
    yield _Line(node, before, node["label"], [f"{bar}· {note}" for note in _notes(node)])
    for input_ in first_inputs:
        yield from _draw(input_, indent + "├─ ", indent + "│  ")
    if last_input is not None:
        branch = bool(first_inputs)
        yield from _draw(last_input, indent + "└─ " * branch, indent + "   " * branch)


def _notes(node: Document) -> Iterator[str]:
    if node["maintained"] != INCREMENTAL:
        yield node["maintained"]
    if any(input_["copied"] for input_ in node["inputs"]):
        yield "its right side is copied to every shard"
    if node["shared_with"]:
        yield f"shared with {', '.join(node['shared_with'])}"


def _where(node: Document, brief: bool) -> str:
    """Where a node runs; in brief, an operator is one that has a place."""
    place: str | None = node["place"]
    where = place if brief and place else ", ".join(filter(None, [node["runs"], place]))
    return where if len(where) <= _MOST_OF_PLACE else where[: _MOST_OF_PLACE - 1] + "…"


def _state_cells(node: Document) -> tuple[str, ...]:
    """The cells of a node under _STATE_TITLES."""
    state = node["state"]
    return (f"{state['rows']:,}", readable_bytes(state["bytes"])) if state else ("", "")


def _cut(label: str, room: int) -> str:
    """The label with as many parts as there is room for, and the number of the others."""
    room = max(room, _OWN_WIDTH)
    if len(label) <= room:
        return label
    columns, where, conditions = label.partition(") where ")
    if where:  # a source, whose columns say less than its conditions
        name, _, names = columns.partition(" (")
        count = names.count(", ") + 1
        text = f"{name} ({count} column{'s' * (count > 1)}) where {conditions}"
        return text if len(text) <= room else f"{text[: room - 1]}…"
    parts, separator = _split(label)
    for count in range(len(parts) - 1, 0, -1):
        text = separator.join(parts[:count]) + separator.rstrip()
        text += f" … {len(parts) - count} more"
        text += ")" * (text.count("(") - text.count(")"))
        if len(text) <= room:
            return text
    return separator.join(parts)[: room - 1] + "…"


def _split(label: str) -> tuple[list[str], str]:
    """The parts of a label's outermost list, those that say most first; and their separator."""
    kind, _, rest = label.partition(" ")
    if kind == "filter":
        parts = _outermost(rest, " AND ")
        parts.sort(key=lambda part: "IS NOT NULL" in part)
        return [f"filter {parts[0]}", *parts[1:]], " AND "
    if kind == "project":
        parts = _outermost(rest, ", ")
        parts.sort(key=lambda part: "(" not in part)
        return [f"project {parts[0]}", *parts[1:]], ", "
    return _outermost(label, ", ") if kind == "source" else [label], ", "


def _outermost(text: str, separator: str) -> list[str]:
    """A text split at those separators that are in the fewest parentheses."""
    depths = accumulate((character == "(") - (character == ")") for character in text)
    places = [(depth, at) for at, depth in enumerate(depths) if text.startswith(separator, at)]
    outer = [at for depth, at in places if depth == min(places)[0]]
    starts, ends = [0, *(at + len(separator) for at in outer)], [*outer, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]
