"""Long expressions for Sail in stages: what they read at several places is computed ahead, once.

Text has no names for its parts, so a part that is read at two places is there twice, and again in
each part above it that is. A window of 30 minutes that slides has 80,000 characters for that
reason, and Sail needs a minute to plan them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from everview.plan.expressions.rendering import for_sail_only
from everview.plan.expressions.trees import Apply, Ref, Tree, Variable

Stage = tuple[tuple[str, Tree], ...]  # columns that are computed together, by their names
_LONG = 2_000  # characters; shorter expressions stay as they are
_SHORT = 40  # and so do shorter parts
_PLACE = re.compile(r"{(\d+)}")
_LAZY = re.compile(r"\b(?:CASE|WHEN|AND|OR)\b|\b(?:coalesce|if|nvl|ifnull)\(", re.IGNORECASE)
_FIRST = re.compile(r"\(*(?:CASE )?(?:WHEN )?(?:\w*\()*")  # what may stand before what is needed
_HEAD = re.compile(r"\w*\(")


@lru_cache(256)
def staged(
    trees: tuple[Tree, ...], names: tuple[str, ...]
) -> tuple[tuple[Stage, ...], tuple[Tree, ...]]:
    """Columns to compute ahead, stage by stage, and the trees over them. Their names differ from
    those of the columns that are there."""
    trees = tuple(map(for_sail_only, trees))
    parts = list(_distinct(trees))
    lengths = _lengths(parts)
    if sum(lengths[tree] for tree in trees) <= _LONG:
        return (), trees
    uses = Counter(below for part in parts for below in _read(part))
    ahead = {
        part
        for part in _always_computed(trees)
        if uses[part] > 1 and lengths[part] > _SHORT and _may_be_column(part)
    }
    prefix = "stage_"
    while any(name.lower().startswith(prefix) for name in names):
        prefix += "_"
    results: dict[Tree, Tree] = {}
    depths: dict[Tree, int] = {}
    stages: list[list[tuple[str, Tree]]] = []
    for part in parts:
        below = part.parts()
        depths[part] = max((depths[one] + (one in ahead) for one in below), default=0)
        results[part] = part.with_parts([results[one] for one in below])
        if part in ahead:
            while len(stages) <= depths[part]:
                stages.append([])
            name = f"{prefix}{sum(map(len, stages))}"
            stages[depths[part]].append((name, results[part]))
            results[part] = Ref(name)
    return tuple(map(tuple, stages)), tuple(results[tree] for tree in trees)


def _distinct(trees: Sequence[Tree]) -> Iterator[Tree]:
    """Every part by its value, those below first."""
    seen = set()
    for tree in trees:
        for part in tree.walk():
            if part not in seen:
                seen.add(part)
                yield part


def _lengths(parts: Sequence[Tree]) -> dict[Tree, int]:
    """About how many characters the text of each part has."""
    lengths: dict[Tree, int] = {}
    for part in parts:
        own = len(part.form) if isinstance(part, Apply) else 10
        lengths[part] = own + sum(lengths[below] for below in _read(part))
    return lengths


def _read(part: Tree) -> list[Tree]:
    """The arguments of a part, as often as its text has them."""
    if not isinstance(part, Apply):
        return []
    return [part.arguments[int(place)] for place in _PLACE.findall(part.form)]


def _always_computed(trees: Sequence[Tree]) -> set[Tree]:
    """The parts below the trees that are computed for every row. Others, such as a result of CASE,
    may fail for rows that do not need them."""
    always: set[Tree] = set()
    remaining = list(trees)
    while remaining:
        tree = remaining.pop()
        if isinstance(tree, Apply):
            fresh = [tree.arguments[place] for place in _strict_places(tree.form)]
            remaining += [part for part in fresh if part not in always]
            always.update(fresh)
    return always


@lru_cache(1024)
def _strict_places(form: str) -> tuple[int, ...]:
    """The places of the arguments that a form needs for every row: of one that may leave some out,
    just the first."""
    lazy = _LAZY.search(form)
    if lazy is None:
        return tuple(dict.fromkeys(map(int, _PLACE.findall(form))))
    first = _PLACE.search(form)
    if first is None or not _FIRST.fullmatch(form[: first.start()]):
        return ()
    return (int(first[1]),)


@lru_cache(1024)
def _is_whole(form: str) -> bool:
    """Whether a form is an expression for sure and no clause of one, as `WHEN {0} THEN {1}` is: a
    call, or something in parentheses."""
    head = _HEAD.match(form)
    if head is None:
        return form.startswith("CASE ") and form.endswith(" END")
    depth = 1
    for place, character in enumerate(form[head.end() :], head.end()):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return place == len(form) - 1
    return False


def _may_be_column(tree: Tree) -> bool:
    """Whether a part means the same outside of the functions with variables around it."""
    is_whole = isinstance(tree, Apply) and _is_whole(tree.form)
    return is_whole and not any(isinstance(part, Variable) for part in tree.walk())
