"""An expression as the rules for Sail see it, and the rules that only refuse some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everview.plan.expressions import Refused, Tree, all_of, call, places, sql, string
from everview.spark.trees import children_of, constant_of, type_of

REALS = ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class Operation:
    """An expression, its arguments, its plain tree for Sail, and the guards where it counts."""

    expression: Any
    parts: Sequence[Tree]
    plain: Tree
    guards: Sequence[Tree]

    @property
    def types(self) -> list[str]:
        return [type_of(child) for child in children_of(self.expression)]

    @property
    def type(self) -> str:
        return type_of(self.expression)

    def has_reals(self) -> bool:
        return any(real in type_ for type_ in self.types for real in REALS)

    def literal(self, place: int) -> Any:
        """The value of an argument that is a constant, else None."""
        return constant_of(children_of(self.expression)[place])

    def unless(self, ok: Tree, why: str, result: Tree | None = None, *cases: Tree) -> Tree:
        """The result for values that are `ok`; for others an error, where the guards hold. Other
        cases come first."""
        error = call("raise_error", string(f"{why}; run this view with the engine spark"))
        fine = sql("WHEN coalesce({0}, true) THEN {1}", ok, result or self.plain)
        last = sql("ELSE {0}", error)
        if self.guards:
            holds = all_of([sql("({0})", guard) for guard in self.guards])
            last = sql("WHEN {0} THEN {1}", holds, error)
        return sql(f"CASE {places(len(cases) + 2, ' ')} END", *cases, fine, last)


Rule = Callable[[Operation], Tree | None]


def refuse(what: str) -> Rule:
    """Refuses all such expressions."""
    return lambda operation: Refused(what)


def refuse_reals(what: str) -> Rule:
    """Refuses expressions with doubles among or in their arguments."""
    return lambda operation: Refused(what) if operation.has_reals() else None
