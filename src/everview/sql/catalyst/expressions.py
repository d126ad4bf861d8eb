"""Catalyst's expressions as trees over the columns of our nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from everview.errors import EverviewError, UnsupportedSql
from everview.plan.expressions import (
    Apply,
    Lit,
    Ref,
    Tree,
    Variable,
    call,
    cast,
    null,
    places,
    sql,
    verbatim,
)
from everview.schema import Column, arrow_type
from everview.spark.trees import (
    can_fail,
    children_of,
    data_type,
    each,
    kind,
    number_of,
    sql_type,
    type_of,
)
from everview.sql.catalyst.building import Names, plain, unused
from everview.sql.catalyst.checking import checked, least_literal
from everview.sql.catalyst.forms import Forms, Scala
from everview.sql.catalyst.sail import agreeing
from everview.sql.catalyst.spelling import PASSING, spelled

_REMEDIES = {
    "INTERVAL": "; show it as a number, with months_between(...) or timestampdiff(MONTH, ...)",
    "VOID": "; give NULL a type, as in CAST(NULL AS STRING)",
    "VARIANT": "; take what you need of it with variant_get(..., '$.path', 'type')",
}


class Expressions:
    """Trees for expressions, and names for columns.

    Catalyst tells columns apart by numbers. `names` has the name of a number's column in the last
    translated node that has it, and `scalars` the name of a scalar subquery's column.
    """

    def __init__(self, jvm: Any) -> None:
        self._scala = Scala.of(jvm)
        self.forms = Forms(jvm)
        self.names: dict[int, str] = {}
        self.scalars: dict[int, str] = {}
        self._variables: dict[int, str] = {}

    def columns(self, outputs: list[Any]) -> tuple[Column, ...]:
        """Named expressions as columns of a node; columns that pass through keep their names."""
        numbers = [number_of(output) for output in outputs]
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

    def cast(
        self, expression: Any, rewritten: Tree | None = None, guards: Sequence[Any] = ()
    ) -> Tree:
        """The expression, or the tree that replaces it, cast to exactly the type that Spark
        resolved, so that any engine has it."""
        if rewritten is None:
            tree = self.tree(expression, guards)
            is_bare = kind(expression) in ("AttributeReference", "Literal")
        else:
            tree, is_bare = rewritten, isinstance(rewritten, Ref | Lit)
        return tree if is_bare else cast(tree, sql_type(expression))

    def tree(self, expression: Any, guards: Sequence[Any] = ()) -> Tree:
        """The expression over our column names; its value counts only where the guards hold."""

        def replace(part: Any) -> Tree | None:
            if kind(part) == "AttributeReference" and number_of(part) in self.names:
                return Ref(self.names[number_of(part)])
            if kind(part) == "ScalarSubquery" and number_of(part) in self.scalars:
                return Ref(self.scalars[number_of(part)])
            return None

        if not expression.deterministic():
            raise UnsupportedSql(
                f"{expression.sql()} gives another value each time, so no view can follow it; "
                "store the value in a column"
            )
        guard_trees = [self.rewrite(guard, replace) for guard in guards]
        return self.rewrite(expression, replace, guard_trees)

    def rewrite(
        self,
        expression: Any,
        replace: Callable[[Any], Tree | None],
        guards: Sequence[Tree] = (),
    ) -> Tree:
        """The expression as a tree, with parts replaced, from the top down.

        A part that can fail does so only where Spark would compute it, which the guards say: an
        engine that works on whole columns computes every branch for every row.
        """
        replaced = replace(expression)
        if replaced is not None:
            return replaced
        name = kind(expression)
        if name.endswith("Subquery"):
            raise UnsupportedSql(
                f"a view with a subquery here can't be maintained yet: {expression.sql()[:80]}"
            )
        if name in PASSING:
            return self.rewrite(expression.child(), replace, guards)
        if name == "LambdaFunction":
            return self._lambda(expression, replace)
        if name == "NamedLambdaVariable":
            return Variable(self._variables[expression.exprId().id()])
        if name == "Literal":
            return least_literal(expression) or self._literal(expression)
        if name == "AggregateExpression":
            return self._aggregate(expression, replace)
        if (checked_tree := checked(self, expression, replace, guards)) is not None:
            return checked_tree
        children: list[Tree] = []
        for place, child in enumerate(children_of(expression)):
            more = _guards(name, children, place)
            children.append(self.rewrite(child, replace, [*guards, *more]))
        if can_fail(expression):
            children = _guarded(expression, children, guards)
        tree = spelled(self, expression, children)
        if tree is None:
            tree = self._as_it_is(expression, children)
        return agreeing(expression, children, tree, guards)

    def _as_it_is(self, expression: Any, children: list[Tree]) -> Tree:
        """The expression in Catalyst's own words, over other children."""
        if kind(expression) == "InSet":
            return self._in_set(expression, children[0])
        if kind(expression) == "Divide" and kind(data_type(expression)) == "DecimalType":
            children = [_dividend(expression, children[0]), *children[1:]]
        return self.forms.applied(expression, children)

    def _aggregate(self, expression: Any, replace: Callable[[Any], Tree | None]) -> Tree:
        """An aggregate function, with its FILTER."""
        function, *conditions = children_of(expression)
        arguments = [self.rewrite(child, replace) for child in children_of(function)]
        tree = self.forms.aggregated(function, arguments, expression.isDistinct())
        if not conditions:
            return tree
        return sql("{0} FILTER (WHERE {1})", tree, self.rewrite(conditions[0], replace))

    def _lambda(self, expression: Any, replace: Callable[[Any], Tree | None]) -> Tree:
        """A function of an array's elements, with variables that have no column's name."""
        outer = dict(self._variables)
        for variable in each(expression.arguments()):
            taken = [*self.names.values(), *self._variables.values()]
            self._variables[variable.exprId().id()] = unused("x", taken)
        variables = list(self._variables.values())[len(outer) :]
        body = self.rewrite(expression.function(), replace)
        self._variables = outer
        listed = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
        return sql(f"{listed} -> {{0}}", body)

    def _literal(self, literal: Any) -> Lit:
        """A literal. Spark has no text for one form of arrays, so these are converted first."""
        is_array = type_of(literal).startswith("ARRAY") and literal.value() is not None
        if is_array and kind(literal.value()) == "UnsafeArrayData":
            items = literal.value().toObjectArray(data_type(literal).elementType())
            array = self._scala.literal(self._scala.array(items), data_type(literal))
            return Lit(str(array.sql()), type_of(literal))
        return Lit(str(literal.sql()), type_of(literal))

    def _in_set(self, expression: Any, child: Tree) -> Tree:
        """IN with many literals, which Catalyst has as a set."""
        tree = self.forms.applied(expression, [child])
        before, _, listed = tree.form.removesuffix("))").partition(" IN (")
        items = [item.replace("{{", "{").replace("}}", "}") for item in _items(listed)]
        type_ = type_of(children_of(expression)[0])
        parts = (child, *(Lit(item, type_) for item in items))
        return Apply(f"{before} IN ({places(len(items), first=1)}))", parts)

    def literal(self, value: Any, like: Any) -> Tree:
        """A value in Spark's own form, as a literal of an expression's type. py4j changes the types
        of numbers."""
        if kind(data_type(like)).startswith(("Date", "Timestamp")) or not isinstance(value, int):
            literal = self._scala.literal(value, data_type(like))
        else:
            literal = self._scala.literal.fromObject(value)
        return cast(self._literal(literal), sql_type(like))

    def nested(self, row: Any, place: int, like: Any) -> str | None:
        """A value of a row in Spark's own form, as text; None for NULL."""
        if row.isNullAt(place):
            return None
        value = row.get(place, data_type(like))
        return self._literal(self._scala.literal(value, data_type(like))).text


def _items(listed: str) -> list[str]:
    """The literals in Spark's text of a list, with escapes in quotes, and parentheses."""
    items, item, depth, quote, is_escaped = [], "", 0, False, False
    for sign in listed:
        if sign == "," and not depth and not quote:
            items.append(item.strip())
            item = ""
            continue
        item += sign
        if quote:
            quote = is_escaped or sign != "'"
            is_escaped = sign == "\\" and not is_escaped
        else:
            quote = sign == "'"
            depth += (sign == "(") - (sign == ")")
    return [*items, item.strip()]


def _guards(parent: str, before: list[Tree], place: int) -> list[Tree]:
    """The conditions under which Spark computes an expression's child at a place."""
    if parent == "And" and place == 1:
        return [_known(before[0], True)]
    if parent == "Or" and place == 1:
        return [_negated(before[0])]
    if parent == "If" and place > 0:
        return [_known(before[0], False) if place == 1 else _negated(before[0])]
    if parent == "CaseWhen":
        earlier = [_negated(condition) for condition in before[: place - place % 2 : 2]]
        return [*earlier, *([_known(before[-1], False)] if place % 2 else [])]
    if parent == "Coalesce" and place > 0:
        return [call("isnull", condition) for condition in before]
    return []


def _known(condition: Tree, otherwise: bool) -> Tree:
    """A condition with a value in place of NULL."""
    return sql(f"coalesce({{0}}, {str(otherwise).lower()})", condition)


def _negated(condition: Tree) -> Tree:
    return call("not", _known(condition, False))


def _guarded(expression: Any, children: list[Tree], guards: Sequence[Tree]) -> list[Tree]:
    """The children of an expression that can fail, with a harmless one where the guards don't hold
    and where NULL is divided."""
    originals = children_of(expression)
    harmless: Tree
    if kind(expression) == "Cast":
        harmless = null(type_of(originals[0]))
    else:
        harmless = sql(f"CAST(1 AS {verbatim(type_of(originals[1]))})")
        if originals[0].nullable() and kind(originals[1]) != "Literal":
            guards = [*guards, call("isnotnull", children[0])]
    if not guards:
        return children
    holds = reduce(lambda first, second: sql("({0} AND {1})", first, second), guards)
    return [*children[:-1], call("if", holds, children[-1], harmless)]


def _dividend(division: Any, rewritten: Tree) -> Tree:
    """The dividend of decimals, with enough digits for the right result on any engine: Arrow's
    result has four digits more than the dividend, and leaves out the rest."""
    type_, result_type = data_type(children_of(division)[0]), data_type(division)
    whole = type_.precision() - type_.scale()
    scale = min(max(type_.scale(), result_type.scale() - 3), 38 - whole)
    if scale <= type_.scale():
        return rewritten
    return cast(rewritten, f"DECIMAL({whole + scale},{scale})")
