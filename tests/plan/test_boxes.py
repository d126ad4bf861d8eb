"""Boxes of conditions: their signs say for every row whether a condition is true."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.plan.boxes import boxes
from everview.plan.expressions import Lit, Ref, Tree, operation, sql

VALUES: dict[str, list[Decimal | None]] = {
    "Y": [None, *map(Decimal, (4, 5, 7, 10, 12, 15, 20))],
    "Z": [None, *map(Decimal, (".1", ".2", ".25", ".3", ".35", ".4", ".5"))],
}
Row = dict[str, Decimal | None]
OPPOSITE = {"=": "<>", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Compared:
    column: str
    sign: str
    value: str

    def excludes(self, other: Compared) -> bool:
        return False

    def holds(self, row: Row) -> bool | None:
        one, other = row[self.column], Decimal(self.value)
        if one is None:
            return None
        return {"=": one == other, "<": one < other, "<=": one <= other}.get(
            self.sign, one > other or (self.sign == ">=" and one == other)
        )


def compare(tree: Tree) -> Compared | None:
    sign = operation(tree).removeprefix("{0} ").removesuffix(" {1}")
    column, value = tree.parts()
    assert isinstance(column, Ref)
    assert isinstance(value, Lit)
    return Compared(column.name, sign, value.text)


def is_true(tree: Tree, row: Row) -> bool | None:
    """As SQL has it: None if it is unknown."""
    form, parts = operation(tree), tree.parts()
    if form == "NOT {0}":
        inner = is_true(parts[0], row)
        return None if inner is None else not inner
    if " OR " in form or " AND " in form:
        decides = " OR " in form
        values = [is_true(part, row) for part in parts]
        return decides if decides in values else (None if None in values else not decides)
    if " IN " in form:
        items = [sql("({0} = {1})", parts[0], item) for item in parts[1:]]
        return is_true(sql("({0} OR {1})", *items), row)
    compared = compare(tree)
    assert compared is not None
    return compared.holds(row)


def rows() -> list[Row]:
    return [{"Y": y, "Z": z} for y, z in product(*VALUES.values())]


def check(*conditions: Tree) -> None:
    found = boxes(conditions, compare)
    assert found is not None
    for row in rows():
        in_boxes = sum(sign * all(c.holds(row) for c in box) for sign, box in found)
        assert in_boxes == all(is_true(tree, row) is True for tree in conditions), row


def of(column: str, sign: str, value: str) -> Tree:
    return sql(f"({{0}} {sign} {{1}})", Ref(column), Lit(value, "DECIMAL"))


def both(one: Tree, other: Tree) -> Tree:
    return sql("({0} AND {1})", one, other)


def either(one: Tree, other: Tree) -> Tree:
    return sql("({0} OR {1})", one, other)


LEAVES = st.builds(
    of,
    st.sampled_from("YZ"),
    st.sampled_from(sorted(OPPOSITE)),
    st.sampled_from(["5", "10", ".25"]),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(both, inner, inner),
        st.builds(either, inner, inner),
        inner.map(lambda tree: sql("(NOT {0})", tree)),
    ),
    max_leaves=4,
)


@given(condition=CONDITIONS, other=LEAVES)
def test_boxes_have_the_rows_for_which_a_condition_is_true(condition: Tree, other: Tree) -> None:
    if boxes([condition, other], compare) is not None:
        check(condition, other)


def test_example_5_1_4_of_the_dissertation_counts_no_row_twice() -> None:
    """Its printed rule adds up the ranges of both sides of an OR, so that a row in both counts
    twice: V2 would be 46."""
    within = both(of("Z", ">=", ".1"), of("Z", "<=", ".3"))
    p1 = both(of("Y", "<", "5"), within)
    p2 = either(of("Y", "<", "10"), both(of("Z", ">=", ".2"), of("Z", "<=", ".4")))
    p3 = of("Y", "<", "15")
    five = [("4", ".1"), ("4", ".25"), ("20", ".25"), ("7", ".35"), ("12", ".5")]
    sums = []
    for condition in (p1, p2, p3):
        check(condition)
        found = boxes([condition], compare) or []
        of_rows = [
            (Decimal(y), sign * all(c.holds({"Y": Decimal(y), "Z": Decimal(z)}) for c in box))
            for y, z in five
            for sign, box in found
        ]
        sums.append(sum(y * times for y, times in of_rows))
    assert sums == [8, 35, 27]


def test_in_and_not_in_are_comparisons_too() -> None:
    items = (Lit("5", "DECIMAL"), Lit("10", "DECIMAL"))
    listed = sql("({0} IN ({1}, {2}))", Ref("Y"), *items)
    check(listed)
    check(sql("(NOT {0})", listed), of("Z", "<", ".3"))


@pytest.mark.parametrize("number", [4, 5])
def test_too_many_parts_have_no_boxes(number: int) -> None:
    condition = of("Y", "=", "0")
    for value in range(1, number):
        condition = either(condition, of("Y", "=", str(value)))
    assert (boxes([condition], compare) is None) == (number == 5)
