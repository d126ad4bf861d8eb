"""Rows of two inputs that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everview.plan.nodes.base import INCREMENTAL, REREADS, Key, KeyOfTable, Node, later, renamed
from everview.plan.placing import Distribution, as_it_lies, hashed
from everview.plan.sizes import Flow, Rows, RowsOf, StateItems
from everview.plan.statistics import touched


@dataclass(frozen=True, eq=False, repr=False)
class Join(Node):
    """Rows of the left with those of the right whose keys are equal.

    `how`: inner, left and full joins have the columns of both sides; single is a left join that
    allows one match at most. The others have the columns of the left: semi the rows with a match,
    anti those without, existence all rows and whether they have a match. With `null_safe[i]`, NULL
    equals NULL in the i-th key. A `replicated` right side is small, and is stored whole in every
    shard. In a `unique` right side no two rows have equal keys.
    """

    kind = "join"
    is_operator = True
    left: Node
    right: Node
    how: str
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    null_safe: tuple[bool, ...]
    replicated: bool
    unique: bool = later(False)

    def label(self) -> str:
        pairs = zip(self.left_keys, self.right_keys, self.null_safe, strict=True)
        on = [f"{left} {'<=>' if safe else '='} {right}" for left, right, safe in pairs]
        side = ", one match at most" if self.unique else ""
        side += ", right side replicated" if self.replicated else ""
        return f"{self.how} join on {' AND '.join(on) or 'true'}{side}"

    def right_names(self) -> dict[str, str]:
        """The names of the right side's columns in the join, if it has them."""
        return dict(zip(self.right.names(), self.names()[len(self.left.columns) :], strict=True))

    def maintenance(self) -> str:
        return INCREMENTAL if self.left_keys else REREADS

    def unique_key(self, keys: Sequence[Key], key_of_table: KeyOfTable) -> Key:
        left, right = keys
        if self.how in ("semi", "anti", "existence", "single"):
            return left
        if self.how != "full" and right is not None and set(right) <= set(self.right_keys):
            return left
        if self.how == "full" and not (_present(self.left, left) and _present(self.right, right)):
            return None
        right_key = renamed(right, self.right_names())
        if self.how == "inner" and left is not None and set(left) <= set(self.left_keys):
            return right_key
        return None if left is None or right_key is None else (*left, *right_key)

    def equal_columns(self) -> Sequence[tuple[str, str]]:
        if self.how != "inner":
            return ()
        right_names = self.right_names()
        pairs = zip(self.left_keys, self.right_keys, strict=True)
        return [(left, right_names[right]) for left, right in pairs]

    def only_grows(self) -> bool:
        return self.how in ("inner", "semi")

    def shards_by(self, distributions: Sequence[Distribution]) -> tuple[Distribution, ...]:
        left = self.left.columns
        if self.replicated and self.left_keys:
            by = distributions[0]
            return (as_it_lies(left, by) if by is None else by, None)
        if self.replicated:
            return (as_it_lies(left, distributions[0]), None)
        places = self._places(distributions)
        return (
            tuple(frozenset({self.left_keys[i]}) for i in places),
            tuple(frozenset({self.right_keys[i]}) for i in places),
        )

    def _places(self, distributions: Sequence[Distribution]) -> list[int]:
        """The places of the keys that decide the shard: those by which one side lies, else all."""
        for by, keys in zip(distributions, (self.left_keys, self.right_keys), strict=True):
            if by and all(place & set(keys) for place in by):
                return [next(i for i, key in enumerate(keys) if key in place) for place in by]
        hashed_names = {
            name for place in hashed(self.left.columns, self.left_keys) for name in place
        }
        return [i for i, key in enumerate(self.left_keys) if key in hashed_names]

    def distribution(self, distributions: Sequence[Distribution]) -> Distribution:
        by = self.shards_by(distributions)[0]
        if self.how == "full":
            return None
        if by is not None and self.how == "inner" and not self.replicated:
            right_names = map(self.right_names().__getitem__, self.right_keys)
            pairs = dict(zip(self.left_keys, right_names, strict=True))
            return tuple(names | {pairs[n] for n in names if n in pairs} for names in by)
        return by

    def state_items(self) -> Iterator[StateItems]:
        yield StateItems(self.left, self.left_keys, tuple(self.left.names()), in_key=True)
        right, keys, copied = self.right, self.right_keys, self.replicated
        if self.gives_pairs():
            yield StateItems(right, keys, tuple(right.names()), in_key=True, copied=copied)
        if self.how != "inner":
            yield StateItems(right, keys, value=8, copied=copied)
        if self.how == "full":
            yield StateItems(self.left, self.left_keys, value=8)

    def gives_pairs(self) -> bool:
        """Whether its rows have the columns of both sides."""
        return self.how in ("inner", "left", "full", "single")

    def flow(self, below: Sequence[Flow], rows_of: RowsOf, shards: int) -> Flow:
        left, right = below
        of_left, of_right = rows_of(self.left), rows_of(self.right)
        copies = shards if self.replicated else 1
        out = rows_of(self).rows
        # partners of a changed row on the other side
        partners = out / max(of_left.rows, 1), out / max(of_right.rows, 1)
        keys = (
            touched(left.changes, of_left.distinct(self.left_keys)),
            touched(right.changes, of_right.distinct(self.right_keys)),
        )
        reads = writes = 0.0
        output = left.times(partners[0])
        if self.gives_pairs():
            reads += keys[0] * max(1.0, partners[0]) + copies * keys[1] * max(1.0, partners[1])
            writes += copies * right.rows
            output = output.with_rows_of(right.times(partners[1]))
        writes += left.rows
        if self.how != "inner":
            reads += keys[0] + copies * keys[1]
            writes += copies * keys[1]
            turning = self._turning(right, keys[1], of_left, of_right)
            reads += turning
            output = output if self.gives_pairs() else output.with_rows_of(Flow(turning, turning))
        return Flow(output.rows, output.changes, left.rows + copies * right.rows, reads, writes)

    def _turning(self, right: Flow, keys: float, of_left: Rows, of_right: Rows) -> float:
        """Rows of the left that get their first partner, or lose their last."""
        of_key = of_right.rows / of_right.distinct(self.right_keys)
        share_of_only_partners = max(0.0, 2 - right.each) / max(of_key, 1.0)
        return keys * share_of_only_partners * of_left.rows / of_left.distinct(self.left_keys)


def _present(node: Node, key: Key) -> bool:
    """Whether a key has columns, none of which may be NULL: a full join has NULLs for rows without
    a match."""
    return bool(key) and not any(node.column(name).nullable for name in key or ())
