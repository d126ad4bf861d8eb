"""Catalyst's expressions as Spark SQL text over the columns of our nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any

from everview.errors import EverviewError, UnsupportedSql
from everview.schema import Column, arrow_type
from everview.spark.trees import can_fail, children_of, each, kind, sql_type
from everview.sql.catalyst.building import Names, plain, unused
from everview.sql.catalyst.checking import checked, least_literal
from everview.sql.catalyst.sail import agreeing
from everview.sql.catalyst.spelling import PASSING, spelled

_REMEDIES = {
    "INTERVAL": "; show it as a number, with months_between(...) or timestampdiff(MONTH, ...)",
    "VOID": "; give NULL a type, as in CAST(NULL AS STRING)",
    "VARIANT": "; take what you need of it with variant_get(..., '$.path', 'type')",
}


class Expressions:
    """Text for expressions, and names for columns.

    Catalyst tells columns apart by numbers; `names` has what the column of a number is called in
    the node translated last that has it, and `scalars` the column of a scalar subquery.
    """

    def __init__(self, jvm: Any) -> None:
        self._scala = _Scala.of(jvm)
        self.names: dict[int, str] = {}
        self.scalars: dict[int, str] = {}
        self._variables: dict[int, str] = {}

    def columns(self, outputs: list[Any]) -> tuple[Column, ...]:
        """Named expressions as the columns of a node; what passes through keeps its name."""
        numbers = [output.exprId().id() for output in outputs]
        passing = {
            self.names[number]
            for output, number in zip(outputs, numbers, strict=True)
            if kind(output) == "AttributeReference" and number in self.names
        }
        names, columns = Names(passing), []
        for output, number in zip(outputs, numbers, strict=True):
            if kind(output) == "AttributeReference" and self.names.get(number) in passing:
                name = self.names[number]
                passing.remove(name)
            else:
                name = names.fresh(plain(output.name()))
                self.names[number] = name
            columns.append(self.typed(name, output))
        return tuple(columns)

    def typed(self, name: str, expression: Any) -> Column:
        try:
            arrow = arrow_type(sql_type(expression))
        except EverviewError as error:
            remedy = next((r for name, r in _REMEDIES.items() if name in sql_type(expression)), "")
            raise UnsupportedSql(
                f"{expression.sql()} is of type {sql_type(expression)}, which views don't "
                f"have yet: {error}{remedy}"
            ) from error
        return Column(name, arrow, expression.nullable())

    def cast(self, expression: Any, rewritten: Any = None, guards: Sequence[Any] = ()) -> str:
        """The expression as text, of exactly the type that Spark resolved, on any engine; or what
        it was rewritten to."""
        text = self.text(expression, guards) if rewritten is None else str(rewritten.sql())
        bare = kind(expression if rewritten is None else rewritten)
        if bare in ("AttributeReference", "Literal"):
            return text
        return f"CAST({text} AS {sql_type(expression)})"

    def text(self, expression: Any, guards: Sequence[Any] = ()) -> str:
        """The expression as text over our column names; asked for where the guards hold."""

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
        given = [self.rewrite(guard, replace) for guard in guards]
        return str(self.rewrite(expression, replace, given).sql())

    def rewrite(
        self, expression: Any, replace: Callable[[Any], Any], guards: Sequence[Any] = ()
    ) -> Any:
        """The expression with parts replaced, from the top down.

        What can fail does so only where Spark would compute it, which the guards say: an engine
        that takes columns as a whole computes every branch for every row.
        """
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        if kind(expression).endswith("Subquery"):
            raise UnsupportedSql(
                f"a view with a subquery here can't be maintained yet: {expression.sql()[:80]}"
            )
        if kind(expression) in PASSING:
            return self.rewrite(expression.child(), replace, guards)
        if kind(expression) == "LambdaFunction":
            return self._lambda(expression, replace)
        if kind(expression) == "NamedLambdaVariable":
            return self.reference(expression, self._variables[expression.exprId().id()])
        if kind(expression) == "Literal":
            return least_literal(self, expression) or self._readable(expression)
        if (other := checked(self, expression, replace, guards)) is not None:
            return other
        children: list[Any] = []
        for place, child in enumerate(children_of(expression)):
            more = self._guards(kind(expression), children, place)
            children.append(self.rewrite(child, replace, [*guards, *more]))
        if can_fail(expression):
            children = self._guarded(expression, children, guards)
        made = spelled(self, expression, children)
        if made is None and children:
            new = list(children)
            if kind(expression) == "Divide" and kind(expression.dataType()) == "DecimalType":
                new[0] = self._dividend(expression, new[0])
            made = expression.withNewChildren(self.sequence(new))
        return agreeing(self, expression, children, made or expression, guards)

    def _lambda(self, expression: Any, replace: Callable[[Any], Any]) -> Any:
        """A function of an array's elements, with variables that no column is named like."""
        outer = dict(self._variables)
        for variable in each(expression.arguments()):
            taken = [*self.names.values(), *self._variables.values()]
            self._variables[variable.exprId().id()] = unused("x", taken)
        variables = list(self._variables.values())[len(outer) :]
        body = self.rewrite(expression.function(), replace)
        self._variables = outer
        listed = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
        return self._scala.pretty(f"{listed} -> {body.sql()}", expression.dataType())

    def _readable(self, literal: Any) -> Any:
        """A literal; an array is taken out of the form that Spark has no text for."""
        is_array = kind(literal.dataType()) == "ArrayType" and literal.value() is not None
        if not is_array or kind(literal.value()) != "UnsafeArrayData":
            return literal
        items = literal.value().toObjectArray(literal.dataType().elementType())
        return self._scala.literal(self._scala.array(items), literal.dataType())

    def _guards(self, parent: str, before: list[Any], place: int) -> list[Any]:
        """What must hold for the child of an expression at a place to be computed."""
        if parent == "And" and place == 1:
            return [self._known(before[0], True)]
        if parent == "Or" and place == 1:
            return [self._negated(before[0])]
        if parent == "If" and place > 0:
            return [self._known(before[0], False) if place == 1 else self._negated(before[0])]
        if parent == "CaseWhen":
            earlier = [self._negated(one) for one in before[: place - place % 2 : 2]]
            return [*earlier, *([self._known(before[-1], False)] if place % 2 else [])]
        if parent == "Coalesce" and place > 0:
            return [self.function("isnull", [one]) for one in before]
        return []

    def _known(self, condition: Any, otherwise: bool) -> Any:
        """A condition with a value in place of NULL."""
        return self.function("coalesce", [condition, self.constant(otherwise)])

    def _negated(self, condition: Any) -> Any:
        return self.function("not", [self._known(condition, False)])

    def _guarded(self, expression: Any, children: list[Any], guards: Sequence[Any]) -> list[Any]:
        """The children of what can fail: harmless ones where it isn't asked for, and where NULL is
        divided."""
        if kind(expression) == "Cast":
            harmless = self._scala.literal(None, expression.child().dataType())
        else:
            one, type_ = self._scala.literal.fromObject(1), expression.right().dataType()
            harmless = self._scala.cast(one, type_, self._scala.none)
            if expression.left().nullable() and kind(expression.right()) != "Literal":
                guards = [*guards, self.function("isnotnull", [children[0]])]
        if not guards:
            return children
        holds = reduce(self._scala.both, guards)
        return [*children[:-1], self.function("if", [holds, children[-1], harmless])]

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

    def constant(self, value: str | int | None) -> Any:
        return self._scala.constant(value)

    def as_type(self, expression: Any, type_: str) -> Any:
        """The expression, cast to a type by its name."""
        return self.written(f"CAST({expression.sql()} AS {type_})")

    def written(self, text: str) -> Any:
        """A text as an expression."""
        return self._scala.pretty(text, self._scala.null_type)

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

    def nested(self, row: Any, place: int, like: Any) -> str | None:
        """A value of a row as Spark has it inside, as text; None where it is NULL."""
        if row.isNullAt(place):
            return None
        value = row.get(place, like.dataType())
        return str(self._readable(self._scala.literal(value, like.dataType())).sql())

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
        self.constant = getattr(catalyst.expressions, "Literal$").__getattr__("MODULE$").apply
        self.cast = catalyst.expressions.Cast
        self.both = catalyst.expressions.And
        self.pretty = catalyst.expressions.PrettyAttribute
        self.array = catalyst.util.GenericArrayData
        self.null_type = jvm.org.apache.spark.sql.types.DataTypes.NullType
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
