"""Results print as tables that line up."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from everview.errors import DataError
from everview.results.result import Result, display_width, render


def test_numbers_stand_right_and_everything_lines_up():
    table = pa.table(
        {"id": [1, 200], "amount": [Decimal("9.90"), None], "name": ["日本🎉", "e\u0301\ta"]}
    )
    text = repr(Result(table))
    assert text.splitlines()[:4] == [
        "+-----+--------+--------+",
        "|  id | amount | name   |",
        "+-----+--------+--------+",
        "|   1 |   9.90 | 日本🎉 |",
    ]
    assert len({display_width(line) for line in text.splitlines()[:-1]}) == 1
    assert text.splitlines()[-1] == "2 rows"


def test_small_decimals_are_shown_with_all_their_places():
    assert "| 0.0000000001 |" in render(pa.table({"x": [Decimal("0.0000000001")]}))


def test_long_results_and_long_values_are_cut_and_say_so():
    table = pa.table({"x": ["y" * 100] * 30})
    lines = render(table).splitlines()
    assert lines[-1] == "30 rows, the first 20 shown"
    assert lines[3] == f"| {'y' * 39}… |"


def test_a_message_is_shown_where_there_are_no_rows():
    done = Result(message="3 rows inserted", count=3)
    assert repr(done) == "3 rows inserted"
    assert (len(done), done.count, list(done)) == (0, 3, [])
    assert repr(Result(pa.table({"x": pa.array([], pa.int32())}))).endswith("0 rows")


def test_rows_by_name_never_lose_a_column_of_the_same_name():
    result = Result(pa.table([pa.array([1]), pa.array([2])], names=["id", "id"]))
    assert "| id | id |" in repr(result)
    with pytest.raises(DataError, match=r"two columns are called id.*with AS"):
        result.to_pylist()
    with pytest.raises(DataError, match="two columns are called id"):
        list(result)


def test_dates_that_python_has_not_are_shown():
    days = pa.array([0, -800_000], pa.int32()).cast(pa.date32())
    assert "| -0221-09-04 |" in render(pa.table({"day": days}))
