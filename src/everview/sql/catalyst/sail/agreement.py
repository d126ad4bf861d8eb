"""The one way to the rules: what Sail gets for an expression so that it answers as Spark does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everview.plan.expressions import Tree, call, either, sql, string
from everview.spark.trees import constant_of, kind
from everview.sql.catalyst.sail import arrays, casts, numbers, texts, times
from everview.sql.catalyst.sail.operation import Operation, Rule

_RULES: dict[str, Rule] = {
    **casts.RULES,
    **numbers.RULES,
    **texts.RULES,
    **times.RULES,
    **arrays.RULES,
}


def agreeing(expression: Any, children: Sequence[Tree], tree: Tree, guards: Sequence[Tree]) -> Tree:
    """The tree of an expression, with other words for Sail if it would answer otherwise."""
    rule = _RULES.get(_name(expression))
    if rule is None:
        return tree
    sail = rule(Operation(expression, children, tree, guards))
    return tree if sail is None else either(tree, sail)


def ordinary(tree: Tree) -> Tree:
    """A double that on Sail must be neither -0.0 nor NaN."""
    why = "Sail takes NaN and -0.0 otherwise here; run this view with the engine spark"
    odd = "isnan({0}) OR ({0} = 0 AND CAST({0} AS STRING) = '-0.0')"
    error = call("raise_error", string(why))
    return either(tree, sql(f"CASE WHEN {odd} THEN {{1}} ELSE {{0}} END", tree, error))


def _name(expression: Any) -> str:
    name = kind(expression)
    if name == "Invoke":
        evaluator = constant_of(expression.targetObject())
        return name if evaluator is None else kind(evaluator)
    if name != "StaticInvoke":
        return name
    class_ = expression.staticObject().getSimpleName().removesuffix("$")
    return f"{class_}.{expression.functionName()}"
