"""Catalyst's expressions as Spark SQL text over the columns of our nodes."""

from __future__ import annotations

from collections.abc import Callable
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
        self._jvm = jvm
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
        return expression.withNewChildren(self.sequence(children)) if children else expression

    def function(self, name: str, arguments: list[Any]) -> Any:
        analysis = self._jvm.org.apache.spark.sql.catalyst.analysis
        unresolved = getattr(getattr(analysis, "UnresolvedFunction$"), "MODULE$")
        return unresolved.apply(name, self.sequence(arguments), False)

    def reference(self, expression: Any, name: str) -> Any:
        catalyst = self._jvm.org.apache.spark.sql.catalyst.expressions
        return catalyst.AttributeReference(
            name,
            expression.dataType(),
            expression.nullable(),
            self._jvm.org.apache.spark.sql.types.Metadata.empty(),
            catalyst.NamedExpression.newExprId(),
            self.sequence([]),
        )

    def literal(self, value: Any, like: Any) -> str:
        """A value as Spark has it inside, of the type of an expression. Numbers come through py4j
        as numbers of another type than they were."""
        made = self._jvm.org.apache.spark.sql.catalyst.expressions.Literal
        if kind(like.dataType()).startswith(("Date", "Timestamp")) or not isinstance(value, int):
            return f"CAST({made(value, like.dataType()).sql()} AS {sql_type(like)})"
        return f"CAST({made.fromObject(value).sql()} AS {sql_type(like)})"

    def aggregate(self, function: Any, distinct: bool) -> str:
        """An aggregate function as text."""
        return str(function.toAggregateExpression(distinct, self._jvm.scala.Option.empty()).sql())

    def sequence(self, items: list[Any]) -> Any:
        java = self._jvm.java.util.ArrayList()
        for item in items:
            java.add(item)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(java).toSeq()
