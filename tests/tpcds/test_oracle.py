"""The oracle itself: it accepts what is right, and sees wrong rows, also at the end of a LIMIT."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from tests.tpcds.oracle import Answer, Row, answer, by_duckdb, differences

SALES = pa.table(
    {
        "item": [1, 2, 3, 4, 5, 6],
        "shop": ["a", "a", "b", "b", "c", None],
        "price": pa.array(
            [Decimal(n) for n in (7, 5, 5, 5, 1, None)[:5]] + [None], pa.decimal128(7, 2)
        ),
    }
)


def parsed(sql: str) -> exp.Query:
    found = sqlglot.parse_one(sql, dialect="spark")
    assert isinstance(found, exp.Query)
    return found


def answered(sql: str) -> Answer:
    with by_duckdb({"sales": SALES}) as run:
        return answer(parsed(sql), run, "duckdb")


def view(rows: list[Row], *kinds: pa.DataType) -> pa.Table:
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    return pa.table(columns, [f"c{at}" for at in range(len(kinds))])


@pytest.mark.parametrize(
    "order",
    [
        "price DESC",  # a column of the result
        "2 DESC",
        "sales.price DESC",  # one that is not, under that name
        "price + 0 DESC",
    ],
)
def test_rows_that_tie_for_the_last_places_may_stand_for_each_other(order: str) -> None:
    wanted = answered(f"SELECT item, price FROM sales ORDER BY {order} LIMIT 3")
    assert wanted.rows == [(1, Decimal("7.00"))]
    assert (len(wanted.tied), wanted.places) == (3, 2)

    def wrong(*items: int) -> list[str]:
        prices = {1: 7, 2: 5, 3: 5, 4: 5, 5: 1}
        rows = [(item, Decimal(prices[item])) for item in items]
        return differences(view(rows, pa.int32(), pa.decimal128(7, 2)), wanted)

    assert not wrong(1, 2, 3)
    assert not wrong(4, 1, 2)
    assert wrong(1, 2) == ["2 rows instead of 3"]
    assert wrong(1, 2, 3, 4) == ["4 rows instead of 3"]
    assert wrong(2, 3, 4)
    assert wrong(1, 2, 5)
    assert wrong(1, 2, 2)


def test_what_is_ordered_by_need_not_be_selected_or_even_named() -> None:
    wanted = answered("SELECT shop FROM sales GROUP BY shop ORDER BY count(*) DESC LIMIT 2")
    assert sorted(wanted.tied) == [("a",), ("b",)]
    assert wanted.places == 2
    wanted = answered("SELECT * FROM sales ORDER BY shop LIMIT 1")
    assert wanted.tied == [(6, None, None)]  # NULL comes first, as in Spark


def test_a_limit_that_is_not_reached_has_no_ties() -> None:
    wanted = answered("SELECT item FROM sales ORDER BY item LIMIT 100")
    assert (len(wanted.rows), wanted.tied) == (6, [])


@pytest.mark.parametrize("found", [1, "x", None, Decimal("1.01")])
def test_one_wrong_value_is_seen(found: Any) -> None:
    kind = pa.scalar(found).type if found is not None else pa.int64()
    wanted = Answer([("k", Decimal("1.00")), ("l", 2)], [])
    right = view([("l", Decimal(2)), ("k", Decimal(1))], pa.string(), pa.decimal128(7, 2))
    assert not differences(right, wanted)
    (told, *_) = differences(view([("k", found)], pa.string(), kind), wanted)
    assert told


def test_rows_count_as_often_as_they_come() -> None:
    wanted = Answer([(1,), (1,), (2,)], [])
    assert not differences(view([(2,), (1,), (1,)], pa.int32()), wanted)
    assert differences(view([(2,), (1,)], pa.int32()), wanted) == ["missing: (1)"]
    assert differences(view([(2,), (2,), (1,), (1,)], pa.int32()), wanted) == ["too much: (2)"]


def test_a_row_with_one_other_value_is_told_as_such() -> None:
    wanted = Answer([("k", 1, Decimal("7.50")), ("l", 2, None)], [])
    found = [("k", 1, Decimal("7.51")), ("m", 5, None)]
    assert differences(view(found, pa.string(), pa.int32(), pa.decimal128(7, 2)), wanted) == [
        "c2 7.51 instead of 7.50 in ('k', 1, 7.51)",
        "too much: ('m', 5, None)",
        "missing: ('l', 2, None)",
    ]


def test_rounded_values_may_differ_by_half_a_unit_and_no_more() -> None:
    wanted = Answer([("k", 0.1234565), ("k", None), ("l", 2.0)], [])

    def accepts(value: str) -> bool:
        rows = [("l", Decimal(2)), ("k", Decimal(value)), ("k", None)]
        return not differences(view(rows, pa.string(), pa.decimal128(20, 6)), wanted)

    assert accepts("0.123456")
    assert accepts("0.123457")
    assert not accepts("0.123455")
    assert not accepts("0.123458")


def test_ties_are_also_found_among_rounded_values() -> None:
    wanted = Answer([("k", 3.0)], [("l", 1 / 3), ("m", 1 / 3)], places=1)

    def wrong(*rows: tuple[str, str]) -> list[str]:
        found = [(name, Decimal(value)) for name, value in rows]
        return differences(view(found, pa.string(), pa.decimal128(20, 6)), wanted)

    assert not wrong(("k", "3"), ("l", "0.333333"))
    assert not wrong(("m", "0.333333"), ("k", "3"))
    assert wrong(("k", "3"), ("l", "0.333343"))
    assert wrong(("k", "3"), ("l", "0.333333"), ("m", "0.333333"))
