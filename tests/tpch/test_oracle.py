"""The oracle itself: it accepts what is right, and sees every kind of wrong row."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from everview.tpch import QUERIES
from tests.tpch.oracle import Answer, Row, differences, recompute

SCALE = 6


def as_view(answer: Answer, rows: list[Row]) -> pa.Table:
    """Rows as a view would have them: DuckDB's doubles as decimals."""
    columns = [[_as_spark(row[i]) for row in rows] for i in range(len(answer.names))]
    arrays = [pa.array(column, _type(column)) for column in columns]
    return pa.table(arrays, answer.names)


def _as_spark(value: Any) -> Any:
    return round(Decimal(value), SCALE) if isinstance(value, float) else value


def _type(column: list[Any]) -> pa.DataType:
    if any(isinstance(value, Decimal) for value in column):
        return pa.decimal128(38, SCALE)
    return pa.int64() if not column else pa.array(column).type


def other(value: Any) -> Any:
    """The next value of the same type."""
    match value:
        case None:
            return Decimal("1.00")
        case float():
            return value + 2.0**-18 + value * 1e-8
        case Decimal():
            return value + Decimal("0.01")
        case int():
            return value + 1
        case date():
            return date.fromordinal(value.toordinal() + 1)
        case str():
            return value + "?"
    raise TypeError(value)


def with_all(table: pa.Table, name: str, value: Any) -> pa.Table:
    """The table with one value in all rows of a column."""
    field = table.schema.field(name)
    column = pa.repeat(pa.scalar(value, field.type), len(table))
    return table.set_column(table.column_names.index(name), field, column)


@pytest.fixture(scope="module")
def answers(rows: dict[str, pa.Table]) -> dict[str, Answer]:
    return recompute(rows)


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_as_it_should_be_is_accepted_and_one_wrong_value_is_seen(
    answers: dict[str, Answer], name: str
) -> None:
    answer = answers[name]
    right = answer.rows + answer.tied[: answer.places]
    assert right
    assert differences(as_view(answer, right[::-1]), answer) == []
    assert differences(as_view(answer, right[:-1]), answer)
    assert differences(as_view(answer, [*right, right[0]]), answer)
    for at in range(len(answer.names)):
        row = right[len(right) // 2]
        changed = (*row[:at], other(row[at]), *row[at + 1 :])
        wrong = [changed, *(r for r in right if r is not row)]
        assert differences(as_view(answer, wrong), answer), answer.names[at]


def test_rows_that_tie_for_the_last_places_may_stand_for_each_other() -> None:
    answer = Answer(["k", "v"], [(1, 9)], [(2, 5), (3, 5), (4, 5)], places=2)

    def wrong(*rows: Row) -> list[str]:
        return differences(as_view(answer, list(rows)), answer)

    assert not wrong((1, 9), (2, 5), (4, 5))
    assert not wrong((4, 5), (3, 5), (1, 9))
    assert wrong((1, 9), (2, 5))
    assert wrong((1, 9), (2, 5), (3, 5), (4, 5))
    assert wrong((1, 9), (2, 5), (2, 5))
    assert wrong((1, 9), (2, 5), (5, 5))
    assert wrong((2, 5), (3, 5), (4, 5))


def test_ties_are_found_in_the_data(rows: dict[str, pa.Table]) -> None:
    """Every order is large, and they are all of one price and day: any 100 will do."""
    orders = with_all(rows["orders"], "o_totalprice", Decimal("1.00"))
    orders = with_all(orders, "o_orderdate", date(1995, 1, 1))
    lines = with_all(rows["lineitem"], "l_quantity", Decimal("301.00"))
    answer = recompute({**rows, "orders": orders, "lineitem": lines}, ["q18"])["q18"]
    assert answer.rows == []
    assert (len(answer.tied), answer.places) == (15000, 100)


def test_rounded_values_may_differ_by_half_a_unit_and_no_more() -> None:
    answer = Answer(["k", "v"], [(1, 0.1234565)], [])

    def accepts(value: str) -> bool:
        column = pa.array([Decimal(value)], pa.decimal128(20, SCALE))
        return not differences(pa.table({"k": [1], "v": column}), answer)

    assert accepts("0.123456")
    assert accepts("0.123457")
    assert not accepts("0.123455")
    assert not accepts("0.123458")


def test_a_column_of_another_name_or_type_is_seen() -> None:
    answer = Answer(["k", "v"], [(1, Decimal("2.00"))], [])
    assert differences(pa.table({"k": [1], "w": [Decimal("2.00")]}), answer)
    assert differences(pa.table({"k": [1], "v": [2]}), answer)
    assert not differences(pa.table({"k": [1], "v": [Decimal("2.00")]}), answer)
