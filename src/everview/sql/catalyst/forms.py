"""Catalyst's own SQL for an expression, as a form with places for its children."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from everview.plan.expressions import Apply, Tree, verbatim
from everview.spark.trees import children_of, data_type, kind, mode_of, type_of

_MARK = "\ue002"  # a character that nobody writes
_PLACE = re.compile(f"{_MARK}(\\d+){_MARK}")
# the SQL of these follows from their class and the number of their children
_PLAIN = {
    *("And", "Or", "Not", "IsNull", "IsNotNull", "EqualTo", "EqualNullSafe", "LessThan"),
    *("LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "If", "CaseWhen", "Coalesce"),
}
_ARITHMETIC = {"Add", "Subtract", "Multiply", "Divide"}  # and from how they fail; % may be mod()
Form = tuple[str, tuple[int, ...]]  # a text with places, and which child is at each place
_known: dict[tuple[str, ...], Form] = {}


class Forms:
    """The forms of expressions. Each takes several round trips to the JVM, so it keeps the
    commonest."""

    def __init__(self, jvm: Any) -> None:
        self._scala = Scala.of(jvm)

    def applied(self, expression: Any, trees: Sequence[Tree]) -> Apply:
        """The expression over other children, which are trees already."""
        trees = _inner(expression, trees)
        key = _key(expression, len(trees))
        if key not in _known:
            form = _form(str(self._marked(expression).sql()))
            if not key:
                return _applied(form, trees)
            _known[key] = form
        return _applied(_known[key], trees)

    def aggregated(self, function: Any, trees: Sequence[Tree], distinct: bool) -> Apply:
        """An aggregate function over other arguments."""
        aggregate = self._marked(function).toAggregateExpression(distinct, self._scala.none)
        return _applied(_form(str(aggregate.sql())), _inner(function, trees))

    def _marked(self, expression: Any) -> Any:
        """The expression with a mark in place of each child, of the child's type: some texts depend
        on the type."""
        children = children_of(expression)
        if not children:
            return expression
        marks = [self._mark(place, child) for place, child in enumerate(children)]
        return expression.withNewChildren(self._scala.sequence(marks))

    def _mark(self, place: int, child: Any) -> Any:
        mark = self._scala.pretty(f"{_MARK}{place}{_MARK}", data_type(child))
        if kind(child) != "SortOrder":
            return mark
        # nothing but a SortOrder may stand here
        return child.withNewChildren(self._scala.sequence([mark, *children_of(child)[1:]]))


def _inner(expression: Any, trees: Sequence[Tree]) -> list[Tree]:
    """The trees that marks stand for: for a SortOrder, the expression that it orders by."""
    pairs = zip(children_of(expression), trees, strict=True)
    return [tree.parts()[0] if kind(child) == "SortOrder" else tree for child, tree in pairs]


def _key(expression: Any, count: int) -> tuple[str, ...]:
    """The key that determines the form of an expression; () if it may depend on more."""
    name = kind(expression)
    if name in _PLAIN:
        return name, str(count)
    if name in _ARITHMETIC:
        return name, mode_of(expression)
    return (name, mode_of(expression), type_of(expression)) if name == "Cast" else ()


def _form(text: str) -> Form:
    first, *rest = _PLACE.split(text)
    order: dict[str, int] = {}
    form = verbatim(first)
    for place, after in zip(rest[::2], rest[1::2], strict=True):
        form += f"{{{order.setdefault(place, len(order))}}}{verbatim(after)}"
    return form, tuple(map(int, order))


def _applied(form: Form, trees: Sequence[Tree]) -> Apply:
    return Apply(form[0], tuple(trees[place] for place in form[1]))


class Scala:
    """Classes and constants of Spark; py4j takes several round trips to look one up."""

    def __init__(self, jvm: Any) -> None:
        catalyst = jvm.org.apache.spark.sql.catalyst
        self.literal = catalyst.expressions.Literal
        self.pretty = catalyst.expressions.PrettyAttribute
        self.array = catalyst.util.GenericArrayData
        self.none = jvm.scala.Option.empty()
        self._list = jvm.java.util.ArrayList
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala

    @staticmethod
    @lru_cache(1)
    def of(jvm: Any) -> Scala:
        return Scala(jvm)

    def sequence(self, items: Sequence[Any]) -> Any:
        java = self._list()
        for item in items:
            java.add(item)
        return self._as_scala(java).toSeq()
