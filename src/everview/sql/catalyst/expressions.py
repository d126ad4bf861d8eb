"""Catalyst's expressions as Spark SQL text over the columns of our nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from everview.errors import EverviewError, UnsupportedSql
from everview.schema import Column, arrow_type
from everview.sql.catalyst.building import plain, unused
from everview.sql.catalyst.trees import each, kind, sql_type


class Expressions:
    """Text for expressions, and names for columns.

    Catalyst tells columns apart by numbers; `names` has what the column of a number is called in
    the node translated last that has it, and `scalars` the column of a scalar subquery.
    """

    def __init__(self, jvm: Any) -> None:
        self._scala = _Scala.of(jvm)
        self.names: dict[int, str] = {}
        self.scalars: dict[int, str] = {}

    def columns(self, outputs: list[Any]) -> tuple[Column, ...]:
        """Named expressions as the columns of a node; what passes through keeps its name."""
        numbers = [output.exprId().id() for output in outputs]
        passing = [
            self.names[number]
            for output, number in zip(outputs, numbers, strict=True)
            if kind(output) == "AttributeReference" and number in self.names
        ]
        taken = list(passing)
        columns = []
        for output, number in zip(outputs, numbers, strict=True):
            if kind(output) == "AttributeReference" and self.names.get(number) in passing:
                name = self.names[number]
                passing.remove(name)
            else:
                name = unused(plain(output.name()), taken)
                taken.append(name)
                self.names[number] = name
            columns.append(self.typed(name, output))
        return tuple(columns)

    def typed(self, name: str, expression: Any) -> Column:
        try:
            arrow = arrow_type(sql_type(expression))
        except EverviewError as error:
            raise UnsupportedSql(
                f"{expression.sql()} is of type {sql_type(expression)}, which views don't "
                f"have yet: {error}"
            ) from error
        return Column(name, arrow, expression.nullable())

    def cast(self, expression: Any, rewritten: Any = None) -> str:
        """The expression as text, of exactly the type that Spark resolved, on any engine; or what
        it was rewritten to."""
        text = self.text(expression) if rewritten is None else str(rewritten.sql())
        bare = kind(expression if rewritten is None else rewritten)
        if bare in ("AttributeReference", "Literal"):
            return text
        return f"CAST({text} AS {sql_type(expression)})"

    def text(self, expression: Any) -> str:
        """The expression as text over our column names."""

        def replace(found: Any) -> Any:
            if kind(found) == "AttributeReference" and found.exprId().id() in self.names:
                return self.reference(found, self.names[found.exprId().id()])
            if kind(found) == "ScalarSubquery" and found.exprId().id() in self.scalars:
                return self.reference(found, self.scalars[found.exprId().id()])
            return None

        if not expression.deterministic():
            raise UnsupportedSql(
                f"{expression.sql()} gives another value each time, so no view can follow it; "
                "store the value in a column"
            )
        return str(self.rewrite(expression, replace).sql())

    def rewrite(self, expression: Any, replace: Callable[[Any], Any]) -> Any:
        """The expression with parts replaced, from the top down."""
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        if kind(expression).endswith("Subquery"):
            raise UnsupportedSql(
                f"a view with a subquery here can't be maintained yet: {expression.sql()[:80]}"
            )
        children = [self.rewrite(child, replace) for child in each(expression.children())]
        if kind(expression) == "CreateNamedStruct":  # its own text leaves out the names
            return self.function("named_struct", children)
        if kind(expression) == "Divide" and kind(expression.dataType()) == "DecimalType":
            children[0] = self._dividend(expression, children[0])
        return expression.withNewChildren(self.sequence(children)) if children else expression

    def _dividend(self, division: Any, rewritten: Any) -> Any:
        """The left of a division of decimals, with so many digits that the result is right on
        any engine: Arrow gives it four more than the left has, and leaves out the rest."""
        given, wanted = division.left().dataType(), division.dataType()
        whole = given.precision() - given.scale()
        scale = min(max(given.scale(), wanted.scale() - 3), 38 - whole)
        if scale <= given.scale():
            return rewritten
        return self._scala.cast(
            rewritten, self._scala.decimal(whole + scale, scale), self._scala.none
        )

    def function(self, name: str, arguments: list[Any]) -> Any:
        return self._scala.function(name, self.sequence(arguments), False)

    def reference(self, expression: Any, name: str) -> Any:
        known = self._scala
        return known.reference(
            name,
            expression.dataType(),
            expression.nullable(),
            known.no_metadata,
            known.next_number(),
            known.nothing,
        )

    def literal(self, value: Any, like: Any) -> str:
        """A value as Spark has it inside, of the type of an expression. Numbers come through py4j
        as numbers of another type than they were."""
        if kind(like.dataType()).startswith(("Date", "Timestamp")) or not isinstance(value, int):
            made = self._scala.literal(value, like.dataType())
        else:
            made = self._scala.literal.fromObject(value)
        return f"CAST({made.sql()} AS {sql_type(like)})"

    def aggregate(self, function: Any, distinct: bool) -> str:
        """An aggregate function as text."""
        return str(function.toAggregateExpression(distinct, self._scala.none).sql())

    def sequence(self, items: list[Any]) -> Any:
        return self._scala.sequence(items)


class _Scala:
    """Classes and constants of Spark's; to look each of them up takes py4j several round trips."""

    def __init__(self, jvm: Any) -> None:
        catalyst, types = jvm.org.apache.spark.sql.catalyst, jvm.org.apache.spark.sql.types
        self.reference = catalyst.expressions.AttributeReference
        self.next_number = catalyst.expressions.NamedExpression.newExprId
        self.literal = catalyst.expressions.Literal
        self.cast = catalyst.expressions.Cast
        self.decimal = types.DecimalType
        self.no_metadata = types.Metadata.empty()
        self.none = jvm.scala.Option.empty()
        self.function = (
            getattr(catalyst.analysis, "UnresolvedFunction$").__getattr__("MODULE$").apply
        )
        self._list = jvm.java.util.ArrayList
        self._as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala
        self.nothing = self.sequence([])

    @staticmethod
    @lru_cache(1)
    def of(jvm: Any) -> _Scala:
        return _Scala(jvm)

    def sequence(self, items: list[Any]) -> Any:
        java = self._list()
        for item in items:
            java.add(item)
        return self._as_scala(java).toSeq()
