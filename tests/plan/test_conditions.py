"""Rows pass the conditions of a source exactly as Python says."""

from __future__ import annotations

import datetime as dt
import operator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.plan.conditions import Condition, passing, value
from everview.plan.nodes import Node, Source
from everview.schema import Column, arrow_type

COMPARE = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUES: dict[str, list[Any]] = {
    "INT": [-(2**31), -1, 0, 2**31 - 1],
    "BIGINT": [-(2**63), 0, 2**63 - 1],
    "DECIMAL(38,2)": [Decimal(n) for n in ("9" * 36 + ".99", "-0.01", "0.00", "-" + "9" * 36)],
    "DATE": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "STRING": ["", "a", "a\0", "B", "ab", "é", "\U0001f600", "\uffff"],
}


@given(data=st.data(), type_=st.sampled_from(list(VALUES)), how=st.sampled_from([*COMPARE]))
def test_values_compare_as_those_of_python(data: st.DataObject, type_: str, how: str) -> None:
    some = st.sampled_from([*VALUES[type_], None])
    rows = data.draw(st.lists(st.tuples(some, some), max_size=6))
    wanted = data.draw(st.sampled_from(VALUES[type_]))
    columns = {
        name: pa.array([row[i] for row in rows], arrow_type(type_)) for i, name in enumerate("ab")
    }

    def compared(one: Any, other: Any) -> bool:
        if one is None or other is None:
            return False
        plain = [x.encode() if isinstance(x, str) else x for x in (one, other)]
        return bool(COMPARE[how](*plain))

    with_value = Condition("a", how, (str(wanted),))
    assert passing([with_value], columns).to_pylist() == [compared(a, wanted) for a, _ in rows]
    with_column = Condition("a", how, other="b")
    assert passing([with_column], columns).to_pylist() == [compared(a, b) for a, b in rows]
    among = Condition("a", "IN", tuple(map(str, VALUES[type_][:2])))
    found = passing([among, with_value], columns).to_pylist()
    assert found == [a in VALUES[type_][:2] and compared(a, wanted) for a, _ in rows]


def test_null_is_told_of_any_column() -> None:
    columns = {"a": pa.array([1.5, None, float("nan")])}
    assert passing([Condition("a", "IS NULL")], columns).to_pylist() == [False, True, False]
    assert passing([Condition("a", "IS NOT NULL")], columns).to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "type_"),
    [("0.005", "DECIMAL(12,2)"), ("3000000000", "INT"), ("2023-02-30", "DATE"), ("1.5", "DOUBLE")],
)
def test_a_text_that_is_no_value_of_the_type_is_none(text: str, type_: str) -> None:
    assert value(text, arrow_type(type_)) is None


def test_a_source_shows_its_conditions_and_comes_back_from_json_with_them() -> None:
    where = (
        Condition("d", ">", ("1995-03-15",)),
        Condition("n", "IN", ("1", "-2.5")),
        Condition("n", "<", other="m"),
        Condition("s", "IS NOT NULL"),
    )
    source = Source((Column("n_2", pa.int64()),), "t", ("n",), where=where)
    assert Node.from_json(source.to_json()) == source
    assert source.label() == (
        "source t (n) where d > '1995-03-15' AND n IN (1, -2.5) AND n < m AND s IS NOT NULL"
    )
