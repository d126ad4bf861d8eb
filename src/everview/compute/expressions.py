"""Expressions as lists of steps: each part once, those below before those above."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from everview.compute.forms import builder
from everview.compute.literals import value_of
from everview.compute.values import Argument, Function, Values
from everview.plan.expressions import Apply, Either, Lit, Ref, Tree
from everview.schema import Column

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Compiled:
    """An expression that can be computed here. Each step has the places of its arguments."""

    type: pa.DataType
    steps: Sequence[tuple[Callable[..., Values], tuple[int, ...]]]

    def of(self, columns: Columns, length: int) -> pa.Array:
        """The values for rows that have these columns. Raises `EngineNeeded`, or an error of
        Arrow's, if the engine has to compute them."""
        results: list[Values] = []
        for function, places in self.steps:
            results.append(function(*(results[place] for place in places), columns=columns))
        last = results[-1]
        if isinstance(last, pa.Scalar):
            return pa.repeat(last, length)
        return last.combine_chunks() if isinstance(last, pa.ChunkedArray) else last


def compiled(tree: Tree, columns: Sequence[Column]) -> Compiled | None:
    """The expression over columns of these types, with Spark's words; None if Arrow's answer may
    differ from Spark's."""
    types = {column.name: column.type for column in columns}
    arguments: list[Argument] = []
    steps: list[tuple[Callable[..., Values], tuple[int, ...]]] = []
    places: dict[int, int] = {}
    for part in tree.walk(_of_spark):
        below = tuple(places[id(lower)] for lower in _of_spark(part))
        if isinstance(part, Either):
            places[id(part)] = below[0]
            continue
        if isinstance(part, Ref) and part.name in types:
            argument, step = Argument(types[part.name]), _column(part.name)
        elif isinstance(part, Lit) and (value := value_of(part)) is not None:
            argument, step = Argument(value.type, value.as_py(), True), _constant(value)
        elif isinstance(part, Apply) and (build := builder(part.form)) is not None:
            built = build([arguments[place] for place in below])
            if built is None:
                return None
            argument, step = Argument(built.type), _applied(built.function)
        else:
            return None
        places[id(part)] = len(steps)
        arguments.append(argument)
        steps.append((step, below))
    last = places[id(tree)]
    return Compiled(arguments[last].type, steps[: last + 1])


def _of_spark(tree: Tree) -> tuple[Tree, ...]:
    return (tree.spark,) if isinstance(tree, Either) else tree.parts()


def _column(name: str) -> Callable[..., Values]:
    return lambda columns: columns[name]


def _constant(value: pa.Scalar) -> Callable[..., Values]:
    return lambda columns: value


def _applied(function: Function) -> Callable[..., Values]:
    return lambda *values, columns: function(*values)
