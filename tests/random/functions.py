"""Random calls of aggregate and window functions, each with only one right answer."""

from __future__ import annotations

from .expressions import NUMBERS, Expressions, Scope, shape
from .tree import Expression

_PLAIN = [
    *("count(*)", "count", "count", "sum", "sum", "sum", "avg", "avg", "min", "max", "min", "max"),
    *("count distinct", "count distinct", "sum distinct", "avg distinct"),
    *("stddev_samp", "var_pop", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"),
    *("max_by", "min_by", "listagg", "listagg distinct", "count_if", "count two"),
]
_RANKS = ("row_number()", "rank()", "dense_rank()", "ntile(3)")
_FRAMES = (
    "",
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
)
_WAYS = ("", " DESC", " ASC NULLS LAST", " DESC NULLS FIRST")


class Functions(Expressions):
    """Makes calls over a scope."""

    def aggregate(self, scope: Scope) -> Expression:
        name = self.chance.choice(_PLAIN)
        call = self._aggregate(name, scope)
        if self.chance.random() < 0.15:
            only = f" FILTER (WHERE {{{len(call.parts)}}})"
            duck = None if call.duck is None else call.duck + only
            parts = (*call.parts, self.condition(scope, 0))
            call = Expression(call.type, call.text + only, parts, duck)
        return _narrowed(call)

    def _aggregate(self, name: str, scope: Scope) -> Expression:
        function, distinct = name.split()[0], "DISTINCT " if name.endswith(" distinct") else ""
        if name == "count(*)":
            return _call("BIGINT", name)
        if name == "count two":
            both = "count(CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN 1 END)"
            parts = (self.some(scope), self.some(scope))
            return Expression("BIGINT", "count({0}, {1})", parts, both)
        if function == "count":
            return _call("BIGINT", f"count({distinct}{{0}})", self.some(scope))
        if function in ("sum", "avg", "stddev_samp", "var_pop"):
            kind = self.kind(scope, NUMBERS)
            shown = kind if function == "sum" else "RATIO"
            return _call(shown, f"{function}({distinct}{{0}})", self.of(kind, scope))
        if function in ("bool_and", "bool_or", "count_if"):
            shown = "BIGINT" if function == "count_if" else "BOOLEAN"
            return shape(shown, f"{function}({{0}})", self.condition(scope, 0))
        if function.startswith("bit_"):
            return _call("BIGINT", f"{function}({{0}})", self.of("BIGINT", scope))
        if function in ("max_by", "min_by"):
            return self._by(function, scope)
        if function == "listagg" and scope.of("STRING"):
            return self._listagg(distinct, scope)
        kind = self.kind(scope)
        function = function if function in ("min", "max") else "max"
        return _call(kind, f"{function}({{0}})", self.of(kind, scope))

    def _by(self, function: str, scope: Scope) -> Expression:
        """The value of the row with the largest key; where no column is one, of the column."""
        duck = "arg_max_null" if function == "max_by" else "arg_min_null"
        if scope.unique is not None and len(scope.unique) == 1:
            key, shown = scope.unique[0], self.some(scope)
        else:
            key = self.of("BIGINT", scope, 0)
            shown = shape("BIGINT", "({0} + 1)", key)
        text = "({0}, {1})"
        return Expression(shown.type, function + text, (shown, key), duck + text)

    def _listagg(self, distinct: str, scope: Scope) -> Expression:
        way = self.chance.choice(["", " DESC"])
        text = self.of("STRING", scope, 0)
        spark = f"listagg({distinct}{{0}}, '|') WITHIN GROUP (ORDER BY {{0}}{way})"
        duck = f"string_agg({distinct}{{0}}, '|' ORDER BY {{0}}{way})"
        return Expression("STRING", spark, (text,), duck)

    def window(self, scope: Scope) -> Expression:
        """Over an order in which no two different rows tie, unless ties make no difference."""
        total = scope.unique if scope.unique is not None else scope.exact()
        first = self.chance.choice(scope.exact())
        by = [self.chance.choice(scope.exact())] if self.chance.random() < 0.7 else []
        choice = self.chance.random()
        order = [first, *(one for one in total if one != first)]
        frame = ""
        if choice < 0.35:
            text, parts, kind = self.chance.choice(_RANKS), [], "BIGINT"
            if text in ("rank()", "dense_rank()") and self.chance.random() < 0.7:
                order = [first]
        elif choice < 0.6:
            one = self.some(scope, 0)
            text, parts, kind = self._neighbour(), [one], one.type
        else:
            text, parts, kind = self._framed(scope)
            frame = self.chance.choice(_FRAMES)
            if "ROWS" not in frame and self.chance.random() < 0.6:
                order = [first]
        return self._over(kind, text, parts, by, order, frame)

    def _neighbour(self) -> str:
        ways = ["lag({0})", "lead({0})", "lag({0}, 2)", "first_value({0})", "last_value({0})"]
        return self.chance.choice(ways)

    def _framed(self, scope: Scope) -> tuple[str, list[Expression], str]:
        function = self.chance.choice(["sum", "count", "min", "max", "avg"])
        if function in ("sum", "avg"):
            kind = self.kind(scope, NUMBERS)
            shown = "RATIO" if function == "avg" else kind
            return f"{function}({{0}})", [self.of(kind, scope, 0)], shown
        one = self.some(scope, 0)
        shown = "BIGINT" if function == "count" else one.type
        return f"{function}({{0}})", [one], shown

    def _over(
        self,
        kind: str,
        text: str,
        parts: list[Expression],
        by: list[Expression],
        order: list[Expression],
        frame: str,
    ) -> Expression:
        all_parts = [*parts, *by, *order]
        partition = f"PARTITION BY {{{len(parts)}}} " if by else ""
        start = len(parts) + len(by)
        keys = ", ".join(
            f"{{{at}}}{self.chance.choice(_WAYS)}" for at in range(start, len(all_parts))
        )
        call = f"{text} OVER ({partition}ORDER BY {keys}{frame})"
        return _narrowed(_call(kind, call, *all_parts))


def _call(kind: str, text: str, *parts: Expression) -> Expression:
    return Expression(kind, text, parts)


def _narrowed(call: Expression) -> Expression:
    """DuckDB's sums are wider than any column: in it, they get a type to go on with."""
    types = {"BIGINT": "BIGINT", "DECIMAL": "DECIMAL(18,2)"}
    if call.type not in types or not call.text.startswith("sum"):
        return call
    return Expression(call.type, call.text, call.parts, f"CAST({call.text} AS {types[call.type]})")
