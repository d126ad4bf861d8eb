"""Every file of functions is found, and each function says all that plans and operators ask."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview import functions
from everview.errors import FormatMismatch
from everview.functions import BY_NAME, function_of, of_catalyst
from everview.functions.base import AggregateFunction

EACH = pytest.mark.parametrize("function", BY_NAME.values(), ids=str)


def test_no_two_functions_have_a_name() -> None:
    found = list(functions._all())
    assert len(found) == len({function.name for function in found}) == len(BY_NAME)


@EACH
def test_catalyst_finds_each_function(function: AggregateFunction) -> None:
    assert function.catalyst
    assert {of_catalyst(one, lambda: function.name) for one in function.catalyst} == {function}


def test_by_another_name_a_class_of_catalyst_means_its_first_function() -> None:
    assert of_catalyst("Sum", lambda: "total") == function_of("sum")
    assert of_catalyst("Average", lambda: "try_avg") == function_of("try_avg")
    assert of_catalyst("Percentile", lambda: "percentile") is None


@EACH
def test_stored_state_has_columns_in_an_order_of_their_own(function: AggregateFunction) -> None:
    columns = function.state()
    assert len({(column.place, column.name) for column in columns}) == len(columns)
    stored = [column.type(pa.float64()) for column in columns]
    assert all(
        one == pa.binary() or pa.types.is_integer(one) or pa.types.is_decimal(one) for one in stored
    )


@EACH
def test_what_comes_from_values_has_no_result_of_sums(function: AggregateFunction) -> None:
    if function.from_values:
        with pytest.raises(NotImplementedError):
            function.result(pa.array([1]), arrow=pa.int64())
    else:
        with pytest.raises(NotImplementedError):
            function.of_values(None)  # type: ignore[arg-type]


def test_a_function_of_another_version_is_an_error_that_says_so() -> None:
    with pytest.raises(FormatMismatch, match="has the aggregate function frequency"):
        function_of("frequency")
