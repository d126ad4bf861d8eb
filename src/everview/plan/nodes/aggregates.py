"""Groups of rows, and the functions that are called for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everview.functions import AggregateFunction, function_of
from everview.plan.nodes.base import Key, KeyOfTable, Node, later, part
from everview.plan.placing import Distribution, keyed
from everview.plan.sizes import Flow, RowsOf, StateItems
from everview.plan.statistics import touched
from everview.schema import Column


@part
@dataclass(frozen=True)
class Call:
    """An aggregate function of a column of the input, or of two; None counts rows.

    Of two, a row has both or none.
    """

    function: str
    argument: str | None
    distinct: bool = False
    other: str | None = None

    @property
    def definition(self) -> AggregateFunction:
        """The function itself."""
        return function_of(self.function)

    @property
    def keeps_values(self) -> bool:
        """Whether the state has all values of its argument, in order."""
        return self.distinct or self.definition.from_values

    def __str__(self) -> str:
        arguments = ", ".join(filter(None, [self.argument or "*", self.other]))
        return f"{self.function}({'DISTINCT ' * self.distinct}{arguments})"


@dataclass(frozen=True, eq=False, repr=False)
class Aggregate(Node):
    """Groups by columns of the input; has the groups' columns, then one for each call.

    From a `growing` input no row ever goes.
    """

    kind = "aggregate"
    is_operator = True
    input: Node
    groups: tuple[str, ...]
    calls: tuple[Call, ...]
    growing: bool = later(False)

    def label(self) -> str:
        calls = ", ".join(map(str, self.calls))
        groups = f" by ({', '.join(self.groups)})" if self.groups else " of all rows"
        grows = ", of rows that stay" if self.growing else ""
        return f"aggregate{groups}{': ' * bool(calls)}{calls}{grows}"

    def required_columns(self, needed: set[str]) -> set[str]:
        arguments = {name for call in self.calls for name in (call.argument, call.other) if name}
        return arguments | set(self.groups)

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        return self.groups

    def ordered_columns(self) -> Iterator[tuple[str, Column]]:
        for call in self.calls:
            if call.argument and call.keeps_values:
                yield f"{call.function} of", self.input.column(call.argument)

    def is_empty_of_nothing(self) -> bool:
        return bool(self.groups)

    def has_row_of_nothing(self) -> bool:
        return not self.groups

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        return (keyed(self.input.columns, distributions[0], self.groups),)

    def state_items(self) -> Iterator[StateItems]:
        arguments = {(c.argument, c.other, c.distinct): c for c in self.calls if c.argument}
        wide = sum(
            8 + call.definition.bytes_of(self.input.column(str(call.argument)).type)
            for call in arguments.values()
        )
        yield StateItems(self.input, self.groups, value=8 + wide, groups=self)
        valued = {call.argument for call in self.calls if call.keeps_values}
        for argument in sorted(filter(None, valued)):
            yield StateItems(self.input, self.groups, (*self.groups, argument), in_key=True)

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        (delta,) = below
        rows, groups = rows_of(self.input).rows, rows_of(self).rows
        hit = touched(delta.changes, groups)
        # a group's row goes and comes, unless the group is new or gone
        out = hit * max(1.0, 2 - max(0.0, 2 - delta.each) * groups / max(rows, 1.0))
        arguments = {call.argument for call in self.calls if call.keeps_values}
        looked_up = sum(call.definition.from_values for call in self.calls)
        reads = hit + delta.rows * len(arguments) + 2 * hit * looked_up
        return Flow(out, hit, delta.rows, reads, hit + delta.rows * len(arguments))
