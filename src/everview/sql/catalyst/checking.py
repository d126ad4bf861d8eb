"""Arithmetic of integers and casts that stop a view on Sail too where Spark stops it.

Sail's integers wrap around, and it compares `CAST(x AS INT) > 5` without the cast, whether or not
x fits. It also computes every branch and every condition for every row. So for Sail, a whole tree
of such operations is written with functions that return NULL where they fail. A NULL without a NULL
below it raises an error, in rows for which Spark would compute the tree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everview.plan.expressions import (
    Lit,
    Refused,
    Tree,
    all_of,
    call,
    cast,
    either,
    places,
    readable,
    sql,
    string,
)
from everview.spark.trees import (
    children_of,
    constant_of,
    data_type,
    kind,
    mode_of,
    type_of,
)

if TYPE_CHECKING:
    from everview.sql.catalyst.expressions import Expressions

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_EXACT = {"DECIMAL", *_BITS}
_SIGNS = {"Add": " + ", "Subtract": " - ", "Multiply": " * "}
_REAL = "CASE WHEN abs({0}) < CAST('Infinity' AS DOUBLE) THEN CAST({0} AS DOUBLE) END"
_OF_REAL = "CASE WHEN abs({0}) < 1e-4D THEN {1} ELSE {2} END"
_DIGITS_OF_SMALL = 4  # of numbers below 0.0001, which Sail writes with an exponent
_LONGEST = 100  # of an expression that an error shows
_TRIED = {"Add": "try_add", "Subtract": "try_subtract", "Multiply": "try_multiply"}


def overflows(expression: Any) -> bool:
    """Whether arithmetic or a cast has no result for some values of its types."""
    if not _is_checked(expression):
        return False
    if kind(expression) == "Cast":
        return not _fits(expression)
    return _range(expression, clipped=False) != _range(expression)


def checked(
    trees: Expressions,
    expression: Any,
    replace: Callable[[Any], Tree | None],
    guards: Sequence[Tree],
) -> Tree | None:
    """A tree of integer arithmetic and casts, in words for each engine; None if it is another
    expression, or no part of it can overflow. `replace` and `guards` are those of
    `Expressions.rewrite`."""
    if not any(map(overflows, _tree(expression))):
        return None
    tree = _Tree(trees, lambda leaf: trees.rewrite(leaf, replace, guards))
    spark, type_ = tree.rebuilt(expression), type_of(expression)
    sail = tree.tried(expression)
    conditions = [sql("({0})", guard) for guard in guards]
    conditions += [sql("({0}) IS NOT NULL", leaf) for leaf in dict.fromkeys(tree.nullable)]
    text = readable(spark)[:_LONGEST]
    error = call("raise_error", string(f"[ARITHMETIC_OVERFLOW] {text} does not fit {type_}"))
    if conditions:
        error = sql("if({0}, {1}, NULL)", all_of(conditions), error)
    return either(spark, call("coalesce", sail, error))


def least_literal(literal: Any) -> Tree | None:
    """The least number of a type, if the literal is that: Sail reads it as a sign and a number that
    is too large."""
    type_ = type_of(literal)
    least = -(2 ** (_BITS[type_] - 1)) if type_ in _BITS else None
    if least is None or constant_of(literal) != least:
        return None
    return either(Lit(str(literal.sql()), type_), Lit(f"CAST('{least}' AS {type_})", type_))


@dataclass
class _Tree:
    """The words for a tree. `rewrite` translates its leaves; `nullable` has the leaves that may be
    NULL."""

    trees: Expressions
    rewrite: Callable[[Any], Tree]
    leaves: deque[Tree] = field(default_factory=deque)
    nullable: list[Tree] = field(default_factory=list)

    def rebuilt(self, expression: Any) -> Tree:
        """The tree over rewritten leaves, for Spark."""
        if not _is_checked(expression):
            leaf = self.rewrite(expression)
            self.leaves.append(leaf)
            return leaf
        children = [self.rebuilt(child) for child in children_of(expression)]
        return self.trees.forms.applied(expression, children)

    def tried(self, expression: Any) -> Tree:
        """The same tree for Sail, NULL where it overflows; call `rebuilt` first."""
        if not _is_checked(expression):
            return self._leaf(expression)
        name, type_ = kind(expression), type_of(expression)
        if name == "Cast" and not _is_checked(children_of(expression)[0]):
            return self._cast(expression, type_)
        parts = [self.tried(child) for child in children_of(expression)]
        may_fail = overflows(expression)
        if name == "Cast":
            return _tried_cast(parts[0], type_) if may_fail else cast(parts[0], type_)
        if name == "UnaryMinus":
            name, parts = "Subtract", [sql(f"CAST(0 AS {type_})"), *parts]
        if may_fail:
            return tried(name, parts, type_)
        return sql(f"({places(len(parts), _SIGNS[name])})", *parts)

    def _leaf(self, expression: Any, form: str = "") -> Tree:
        leaf = self.leaves.popleft()
        if form:
            leaf = sql(form, leaf)
        if expression.nullable() or form:
            self.nullable.append(leaf)
        return leaf

    def _cast(self, expression: Any, type_: str) -> Tree:
        """A cast of a leaf. The whole seconds of a moment are those before it, not those nearer to
        1970; a double becomes the decimal of its text, and NULL if it is no number."""
        (child,) = children_of(expression)
        source = type_of(child)
        if source == "TIMESTAMP" and type_ in _BITS:
            return _tried_cast(whole_seconds(self._leaf(child)), type_)
        if source.startswith(("TIMESTAMP", "INTERVAL")) and type_ not in _BITS:
            return Refused(f"Sail has other digits of {source} as DECIMAL")
        if source in ("FLOAT", "DOUBLE") and type_ not in _BITS:
            real = self._leaf(child, _REAL)
            text = _tried_cast(cast(real, "STRING"), type_)
            if int(type_.split(",")[1][:-1]) > _DIGITS_OF_SMALL:
                return text
            return sql(_OF_REAL, real, cast(real, type_), text)
        leaf = self._leaf(child)
        return _tried_cast(leaf, type_) if overflows(expression) else cast(leaf, type_)


def _tried_cast(tree: Tree, type_: str) -> Tree:
    return sql(f"try_cast({{0}} AS {type_})", tree)


def whole_seconds(moment: Tree) -> Tree:
    """The seconds since 1970, rounded down; Sail rounds towards 1970."""
    return sql("(({0} - pmod({0}, 1000000L)) div 1000000L)", call("unix_micros", moment))


def whole_milliseconds(moment: Tree) -> Tree:
    """The milliseconds since 1970, as `whole_seconds`."""
    return sql("(({0} - pmod({0}, 1000L)) div 1000L)", call("unix_micros", moment))


def tried(operation: str, parts: Sequence[Tree], type_: str) -> Tree:
    """Arithmetic of integers for Sail: NULL where it overflows."""
    if type_ in ("INT", "BIGINT"):
        return call(_TRIED[operation], *parts)
    wide = [cast(part, "INT") for part in parts]
    return sql(f"try_cast({places(len(wide), _SIGNS[operation])} AS {type_})", *wide)


def _tree(expression: Any) -> Iterator[Any]:
    """The checked operations at the top of an expression."""
    if _is_checked(expression):
        yield expression
        for child in children_of(expression):
            yield from _tree(child)


def _is_checked(expression: Any) -> bool:
    """Whether Spark checks the result, so that we do on Sail."""
    name = kind(expression)
    if name == "Cast":
        from_text = type_of(children_of(expression)[0]).startswith(("STRING", "BOOLEAN"))
        exact = type_of(expression).split("(")[0] in _EXACT
        return exact and not from_text and mode_of(expression) == "ANSI"
    if name == "UnaryMinus":
        return bool(expression.failOnError()) and type_of(expression) in _BITS
    if name not in _SIGNS or type_of(expression) not in _BITS:
        return False
    return mode_of(expression) == "ANSI"


def _fits(cast: Any) -> bool:
    """Whether every value of a cast's child fits the new type."""
    source, target = type_of(children_of(cast)[0]), type_of(cast)
    if source in _BITS and target in _BITS:
        low, high = _range(children_of(cast)[0])
        least, greatest = _of_type(target)
        return least <= low and high <= greatest
    return bool(cast.canUpCast(data_type(children_of(cast)[0]), data_type(cast)))


def _range(expression: Any, clipped: bool = True) -> tuple[int, int]:
    """The least and the greatest value of an integer expression; unclipped, before it has to fit
    its type."""
    own = _of_type(type_of(expression))
    name = kind(expression)
    if (known := constant_of(expression)) is not None:
        return known, known
    if name == "Cast" and type_of(children_of(expression)[0]) in _BITS:
        bounds = _range(children_of(expression)[0])
    elif name in _SIGNS or name == "UnaryMinus":
        bounds = _computed(name, [_range(child) for child in children_of(expression)])
    else:
        return own
    return (max(bounds[0], own[0]), min(bounds[1], own[1])) if clipped else bounds


def _computed(name: str, ranges: list[tuple[int, int]]) -> tuple[int, int]:
    low, high = ranges[0]
    if name == "UnaryMinus":
        return -high, -low
    least, greatest = ranges[1]
    if name == "Add":
        return low + least, high + greatest
    if name == "Subtract":
        return low - greatest, high - least
    corners = [first * second for first in (low, high) for second in (least, greatest)]
    return min(corners), max(corners)


def _of_type(type_: str) -> tuple[int, int]:
    bound = 2 ** (_BITS[type_] - 1)
    return -bound, bound - 1
