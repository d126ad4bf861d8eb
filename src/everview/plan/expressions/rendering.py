"""Trees as SQL: only here they become text for an engine."""

from __future__ import annotations

import re
from collections.abc import Callable

from everview.errors import UnsupportedSql
from everview.plan.expressions.trees import (
    Apply,
    Either,
    Lit,
    Ref,
    Refused,
    Tree,
    Variable,
    Written,
    changed,
)
from everview.plan.expressions.written import for_sail, for_spark
from everview.schema import quoted

Side = Callable[[Tree], tuple[Tree, ...]]  # the parts of a tree for one engine
_BARE = re.compile(r"[^\W\d]\w*")


def on_spark(tree: Tree) -> str:
    """SQL for Spark."""
    return _rendered(tree, _of_spark, quoted)


def on_sail(tree: Tree) -> str:
    """SQL for Sail. Raises `UnsupportedSql` if a part is refused there."""
    for part in tree.walk(_of_sail):
        why = part.why if isinstance(part, Refused) else None
        if isinstance(part, Written):
            _, why = for_sail(part.text)
        if why is not None:
            raise UnsupportedSql(
                f"{why}, so this view can't be maintained on Sail: run it with the engine spark"
            )
    return _rendered(tree, _of_sail, quoted)


def both(tree: Tree) -> tuple[str, str]:
    """SQL for Spark and for Sail, with NULL in place of parts that are refused there."""
    return on_spark(tree), _rendered(tree, _of_sail, quoted)


def readable(tree: Tree) -> str:
    """SQL for Spark, for people to read: names without quotes where they need none."""
    return _rendered(tree, _of_spark, lambda name: name if _BARE.fullmatch(name) else quoted(name))


def either(spark: Tree, sail: Tree) -> Tree:
    """One tree for both engines, each of which may have such trees in it."""
    spark, sail = _only(spark, _of_spark), _only(sail, _of_sail)
    return spark if spark == sail else Either(spark, sail)


def not_on_sail(spark: Tree, why: str) -> Tree:
    """A tree for Spark only; `why` tells users what Sail does otherwise."""
    return either(spark, Refused(why))


def _of_spark(tree: Tree) -> tuple[Tree, ...]:
    return (tree.spark,) if isinstance(tree, Either) else tree.parts()


def _of_sail(tree: Tree) -> tuple[Tree, ...]:
    return (tree.sail,) if isinstance(tree, Either) else tree.parts()


def for_sail_only(tree: Tree) -> Tree:
    """The tree of Sail."""
    return _only(tree, _of_sail)


def _only(tree: Tree, side: Side) -> Tree:
    """The tree of one engine."""
    return changed(tree, lambda part: side(part)[0] if isinstance(part, Either) else part, side)


def _rendered(tree: Tree, side: Side, name: Callable[[str], str]) -> str:
    texts: dict[int, str] = {}
    for part in tree.walk(side):
        texts[id(part)] = _text(part, [texts[id(below)] for below in side(part)], side, name)
    return texts[id(tree)]


def _text(part: Tree, below: list[str], side: Side, name: Callable[[str], str]) -> str:
    """The text of a part over the texts of those below it."""
    if isinstance(part, Apply):
        return part.form.format(*below)
    if isinstance(part, Either):
        return below[0]
    if isinstance(part, Ref):
        return name(part.name)
    if isinstance(part, Written):
        return for_spark(part.text) if side is _of_spark else for_sail(part.text)[0]
    if isinstance(part, Refused):
        return "NULL"
    assert isinstance(part, Lit | Variable)
    return part.text if isinstance(part, Lit) else part.name
