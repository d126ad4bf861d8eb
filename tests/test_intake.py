"""Rows and keys in all their forms become exactly the table's Arrow, or an error that helps."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from everview.errors import DataError, NullNotAllowed, UnknownColumn, WrongKey, WrongType
from everview.intake import (
    bound_to_key,
    documents_to_arrow,
    keys_to_arrow,
    rows_to_arrow,
    text_to_arrow,
)
from everview.intake.documents import format_document, parse_document
from everview.schema import TableSchema

UTC = dt.UTC
TYPES = {
    "id": "BIGINT",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "single": "FLOAT",
    "real": "DOUBLE",
    "amount": "DECIMAL(12,2)",
    "wide": "DECIMAL(38,10)",
    "name": "STRING",
    "raw": "BINARY",
    "day": "DATE",
    "moment": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "span": "INTERVAL DAY TO SECOND",
}
ALL = TableSchema.of("things", TYPES, "id")
PAIR = TableSchema.of("pairs", {"a": "INT", "b": "STRING", "c": "DOUBLE"}, ["b", "a"])


def decimals(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    top = 10**digits - 1
    return st.integers(-top, top).map(lambda n: Decimal(f"{n}E-{places}"))


def values() -> dict[str, st.SearchStrategy[Any]]:
    return {
        "id": st.integers(-(2**63), 2**63 - 1),
        "flag": st.booleans(),
        "tiny": st.integers(-128, 127),
        "small": st.integers(-(2**15), 2**15 - 1),
        "whole": st.integers(-(2**31), 2**31 - 1),
        "single": st.floats(width=32, allow_nan=False),
        "real": st.floats(allow_nan=False),
        "amount": decimals(12, 2),
        "wide": decimals(38, 10),
        "name": st.text(st.characters(exclude_categories=["Cs"])),
        "raw": st.binary(),
        "day": st.dates(),
        "moment": st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC)),
        "local": st.datetimes(),
        "span": st.timedeltas(dt.timedelta(-100_000_000), dt.timedelta(100_000_000)),
    }


def rows() -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {name: st.none() | value for name, value in values().items()}
    columns["id"] = values()["id"]
    return st.lists(st.fixed_dictionaries(columns), max_size=5)


EXTREMES = {
    "id": -(2**63),
    "tiny": -128,
    "real": -0.0,
    "wide": Decimal("9" * 28 + "." + "9" * 10),
    "name": "🎉 \x00 日本",
    "raw": b"\x00\xff",
    "day": dt.date(1, 1, 1),
    "moment": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
    "local": dt.datetime(1, 1, 1),
    "span": dt.timedelta(-1, microseconds=-1),
}


@settings(deadline=None)
@given(rows())
@example([dict.fromkeys(TYPES) | EXTREMES])
def test_the_same_rows_in_every_form_become_the_same_table(given_rows):
    expected = pa.Table.from_pylist(given_rows, ALL.arrow)
    forms = [
        given_rows,
        expected,
        expected.select(list(reversed(TYPES))).rename_columns([n.upper() for n in reversed(TYPES)]),
        pl.DataFrame(expected),
        pd.DataFrame(given_rows, columns=list(TYPES), dtype=object),
        expected.to_pandas(types_mapper=pd.ArrowDtype),
    ]
    for form in forms:
        found = rows_to_arrow(ALL, form)
        assert found.schema == ALL.arrow
        assert found.equals(expected), type(form)


@settings(deadline=None)
@given(rows())
@example([{"id": 1, "single": math.inf, "real": -math.inf}])
@example([{"id": 1, "real": 2.5e221}])  # more digits than a decimal has
def test_rows_survive_json(given_rows):
    expected = rows_to_arrow(ALL, given_rows)
    lines = [format_document(row) for row in expected.to_pylist()]
    assert documents_to_arrow(ALL, [parse_document(line) for line in lines]).equals(expected)


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        ("real", 1, 1.0),
        ("real", Decimal("0.1"), 0.1),
        ("single", 0.1, np.float32(0.1)),
        ("id", 2.0, 2),
        ("id", Decimal("2.00"), 2),
        ("id", np.int8(2), 2),
        ("amount", 5, Decimal("5.00")),
        ("amount", "9.9", Decimal("9.90")),
        ("amount", "1e3", Decimal("1000.00")),
        ("amount", 0.1, Decimal("0.10")),
        ("amount", Decimal("1.5000"), Decimal("1.50")),
        ("wide", 0.1, Decimal("0.1000000000")),
        ("day", "0001-01-01", dt.date(1, 1, 1)),
        ("day", dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)),
        ("moment", dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("moment", dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("moment", "2020-01-01", dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("moment", "2020-01-01 05:06", dt.datetime(2020, 1, 1, 5, 6, tzinfo=UTC)),
        ("moment", "2020-01-01T02:00:00+02:00", dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("moment", "2020-01-01T00:00:00.5Z", dt.datetime(2020, 1, 1, 0, 0, 0, 500000, UTC)),
        ("moment", pd.Timestamp("2020-01-01", tz="UTC"), dt.datetime(2020, 1, 1, tzinfo=UTC)),
        ("moment", pd.NaT, None),
        ("local", "2020-01-01T05:06:07", dt.datetime(2020, 1, 1, 5, 6, 7)),
        ("local", dt.date(2020, 1, 1), dt.datetime(2020, 1, 1)),
        ("name", "x" * 1_000_000, "x" * 1_000_000),
    ],
)
def test_values_are_converted_where_nothing_is_lost(column, value, stored):
    assert rows_to_arrow(ALL, {"id": 1, column: value}).to_pylist()[0][column] == stored


@pytest.mark.parametrize(
    ("column", "value", "remedy"),
    [
        ("id", "5", "not text"),
        ("id", True, "pass a whole number"),
        ("id", 1.5, "has a fraction"),
        ("id", 2**63, "outside -9223372036854775808"),
        ("id", math.nan, "pass a whole number"),
        ("tiny", 128, "outside -128 to 127"),
        ("flag", 1, "True or False"),
        ("real", "1", "not text"),
        ("real", 2**53 + 1, "its digits don't all fit"),
        ("real", Decimal("1e400"), "too large"),
        ("single", 1e300, "too large"),
        ("amount", "abc", "such as '9.90'"),
        ("amount", "9.999", "more than 2 decimals"),
        ("amount", 0.125, "more than 2 decimals"),
        ("amount", Decimal("10000000000"), "more than 10 digits before the point"),
        ("amount", Decimal("NaN"), "pass a Decimal"),
        ("amount", Decimal("1E+999999999"), "more than 10 digits"),
        ("amount", True, "pass a Decimal"),
        ("name", 5, "pass a str"),
        ("name", b"x", "decode it"),
        ("name", "\ud800", "surrogates"),
        ("raw", "x", "pass bytes"),
        ("day", "2020-02-30", "such as '2024-12-31'"),
        ("day", dt.datetime(2020, 1, 1, 5), "a time of day"),
        ("day", 18000, "pass a date"),
        ("moment", "yesterday", "such as"),
        ("moment", 0, "pass a datetime"),
        ("moment", pd.Timestamp(1), "has nanoseconds"),
        ("moment", "9999-12-31T23:59:59-01:00", "years 1 to 9999"),
        ("local", "2020-01-01T00:00Z", "it has a time zone"),
        ("local", dt.datetime(2020, 1, 1, tzinfo=UTC), "has a time zone"),
        ("name", ["x"], "pass a str"),
    ],
)
def test_other_values_are_refused_with_their_place_and_a_remedy(column, value, remedy):
    with pytest.raises(WrongType) as refused:
        rows_to_arrow(ALL, [{"id": 0}, {"id": 1, column: value}, {"id": 2}])
    message = str(refused.value)
    assert message.startswith(f"table things, row 2, column {column}: ")
    assert TYPES[column] in message
    assert remedy in message


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**63], pa.uint64()),
        pa.array(["1"]),
        pa.array([True]),
        pa.array([1.5]),
        pa.array([Decimal("1.5")]),
    ],
)
def test_arrow_columns_of_another_type_follow_the_same_rules(column):
    fine = pa.nulls(70_000, column.type)
    table = pa.table({"id": range(70_001), "small": pa.chunked_array([fine, column])})
    with pytest.raises(WrongType, match=r"row 70001, column small: "):
        rows_to_arrow(ALL, table)


def test_the_first_bad_row_is_named_also_among_values_of_mixed_types():
    amounts = [1, "2.5", Decimal(3), None, 0.125, "x", 4]
    given_rows = [{"id": i, "amount": amount} for i, amount in enumerate(amounts)]
    with pytest.raises(WrongType, match=r"row 5, column amount: 0\.125"):
        rows_to_arrow(ALL, given_rows)
    stored = rows_to_arrow(ALL, given_rows[:4]).column("amount").to_pylist()
    assert stored == [Decimal("1.00"), Decimal("2.50"), Decimal("3.00"), None]


def test_out_of_range_arrow_dates_are_refused_and_not_stored_unreadable():
    for value in (pa.array([2**30], pa.date32()), pa.array([-(2**30)], pa.date32())):
        with pytest.raises(WrongType, match="column day"):
            rows_to_arrow(ALL, pa.table({"id": [1], "day": value}))


def test_arrow_of_the_right_types_is_not_copied():
    table = rows_to_arrow(ALL, [{"id": 1, "name": "x"}])
    again = rows_to_arrow(ALL, table)
    for name in ("id", "name"):
        before, after = table.column(name).chunk(0), again.column(name).chunk(0)
        assert [b and b.address for b in before.buffers()] == [
            b and b.address for b in after.buffers()
        ]


def test_nan_is_null_in_pandas_and_a_number_elsewhere():
    frame = pd.DataFrame({"id": [1, 2], "real": [math.nan, 1.0]})
    assert rows_to_arrow(ALL, frame).column("real").to_pylist() == [None, 1.0]
    arrow = pa.table({"id": [1], "real": [math.nan]})
    for form in (arrow, pl.DataFrame(arrow), [{"id": 1, "real": math.nan}]):
        assert math.isnan(rows_to_arrow(ALL, form).column("real")[0].as_py())


def test_pandas_columns_with_holes_are_what_they_look_like():
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "whole": [5.0, math.nan],
            "name": ["x", math.nan],
            "flag": [True, None],
            "moment": pd.to_datetime(["2020-01-01", None]),
            "raw": [math.nan, math.nan],
        }
    )
    found = rows_to_arrow(ALL, frame).to_pylist()
    assert [(r["whole"], r["name"], r["flag"]) for r in found] == [(5, "x", True), (None,) * 3]
    assert found[0]["moment"] == dt.datetime(2020, 1, 1, tzinfo=UTC)
    assert found[1]["raw"] is None


def test_dictionary_columns_are_taken_by_value():
    names = pa.array(["x", "y", "x"]).dictionary_encode()
    found = rows_to_arrow(ALL, pa.table({"id": [1, 2, 3], "name": names}))
    assert found.column("name").to_pylist() == ["x", "y", "x"]


def test_polars_categories_are_taken_by_value():
    frame = pl.DataFrame({"id": [1, 2], "name": ["x", None]})
    found = rows_to_arrow(ALL, frame.with_columns(pl.col("name").cast(pl.Categorical)))
    assert found.column("name").to_pylist() == ["x", None]


def test_missing_columns_are_null_and_spellings_may_differ_between_rows():
    found = rows_to_arrow(PAIR, [{"A": 1, "b": "x"}, {"a": 2, "B": "y", "c": 1.5}])
    assert found.to_pylist() == [{"a": 1, "b": "x", "c": None}, {"a": 2, "b": "y", "c": 1.5}]


def test_no_rows_are_an_empty_table():
    for form in ([], pa.table({"a": []}), pd.DataFrame()):
        assert rows_to_arrow(PAIR, form).num_rows == 0


def test_nested_values_of_queries_have_a_json_form():
    row = {"list": [Decimal("1.50"), b"a"], "struct": {"day": dt.date(2024, 1, 1)}}
    expected = '{"list": ["1.50", "YQ=="], "struct": {"day": "2024-01-01"}, "s": "1 00:00:00"}'
    assert format_document(row | {"s": dt.timedelta(1)}) == expected


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([{"a": 1, "b": "x"}, {"a": 1}], NullNotAllowed, "row 2, column b: NULL or missing"),
        (pa.table({"a": [1]}), NullNotAllowed, "row 1, column b: missing"),
        ([{"a": 1, "b": "x", "z": 1}], UnknownColumn, "no column z; it has a, b, c"),
        (pa.table({"z": [1]}), UnknownColumn, "no column z; it has a, b, c"),
        (pd.DataFrame({0: [1]}), UnknownColumn, "column names are text, not 0"),
        (pa.table([[1], [2]], names=["a", "A"]), DataError, "column a is given twice"),
        ([{"a": 1, "A": 2, "b": "x"}], DataError, "a and A are the same column"),
        ([(1, "x")], WrongType, "row 1: a row is a dict"),
        ("x", WrongType, "rows come as a dict"),
        (5, WrongType, "rows come as a dict"),
    ],
)
def test_wrong_rows_are_explained(bad, error, message):
    with pytest.raises(error, match=message):
        rows_to_arrow(PAIR, bad)


@pytest.mark.parametrize(
    "keys",
    [
        [("x", 1), ("y", 2)],
        [["x", 1], {"A": 2, "b": "y"}],
        pa.table({"a": [1, 2], "B": ["x", "y"]}),
        pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        iter([("x", 1), ("y", 2)]),
    ],
)
def test_composite_keys_come_as_tuples_dicts_or_tables(keys):
    found = keys_to_arrow(PAIR, keys)
    assert found.schema == PAIR.key_arrow
    assert found.to_pylist() == [{"b": "x", "a": 1}, {"b": "y", "a": 2}]


@pytest.mark.parametrize(
    "keys",
    [
        *([1, 2], range(1, 3), [(1,), {"ID": 2}], (1, 2)),
        *(pa.array([1, 2]), pd.Series([1, 2]), pl.Series([1, 2])),
    ],
)
def test_single_keys_come_as_values(keys):
    assert keys_to_arrow(ALL, keys).column("id").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("schema", "keys", "error", "message"),
    [
        (PAIR, [("x",)], WrongKey, r"key 1: \('x',\) is not a key; a key is a tuple \(b, a\)"),
        (PAIR, ["x"], WrongKey, r"a tuple \(b, a\)"),
        (PAIR, [{"a": 1}], WrongKey, "keys have the columns b, a, not a"),
        (PAIR, pa.table({"a": [1], "b": ["x"], "c": [1.0]}), WrongKey, "not a, b, c"),
        (PAIR, [("x", "1")], WrongType, "key 1, column a: '1' is not an INT"),
        (PAIR, [("x", 1), ("x", None)], NullNotAllowed, "key 2, column a"),
        (ALL, [(1, 2)], WrongKey, r"one value \(id\)"),
        (ALL, 1, WrongKey, r"keys come in a list, such as \[1\]"),
        (ALL, "abc", WrongKey, "keys come in a list"),
        (ALL, {"id": 1}, WrongKey, "keys come in a list"),
    ],
)
def test_wrong_keys_are_explained(schema, keys, error, message):
    with pytest.raises(error, match=message):
        keys_to_arrow(schema, keys)


@pytest.mark.parametrize(
    ("bound", "exact"), [(None, None), ("x", ("x",)), (["x", 1.0], ("x", 1)), ({"B": "x"}, ("x",))]
)
def test_bounds_of_scans_are_keys_or_their_leading_columns(bound, exact):
    assert bound_to_key(PAIR, bound) == exact


@pytest.mark.parametrize(
    ("bound", "error", "message"),
    [
        ((), WrongKey, r"a key or its leading columns \(b, a\)"),
        (("x", 1, 2), WrongKey, r"a key or its leading columns \(b, a\)"),
        ({"a": 1}, WrongKey, r"a key or its leading columns \(b, a\)"),
        (5, WrongType, "column b: 5 is not a STRING"),
        (("x", 1.5), WrongType, "column a: 1.5 is not an INT; it has a fraction"),
        (("x", None), NullNotAllowed, "column a"),
    ],
)
def test_other_bounds_are_refused_and_not_rounded(bound, error, message):
    with pytest.raises(error, match=message):
        bound_to_key(PAIR, bound)


def place(row: int) -> str:
    return f"f.csv, row {row}"


def test_text_is_parsed_into_every_type():
    texts = {
        "id": " 5 ",
        "flag": "true",
        "real": "-inf",
        "amount": "9.9",
        "name": " as it is ",
        "raw": "/w==",
        "day": "2020-01-01",
        "moment": "2020-01-01",
    }
    table = pa.table({name: [text, None if name != "id" else "6"] for name, text in texts.items()})
    first, second = text_to_arrow(ALL, table, place).to_pylist()
    assert first["id"] == 5
    assert first["flag"] is True
    assert first["real"] == -math.inf
    assert first["amount"] == Decimal("9.90")
    assert first["name"] == " as it is "
    assert first["raw"] == b"\xff"
    assert first["day"] == dt.date(2020, 1, 1)
    assert second == dict.fromkeys(TYPES) | {"id": 6}


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("id", "0x10"),
        ("id", "1.5"),
        ("id", ""),
        ("id", "9223372036854775808"),
        ("real", "1e400"),
        ("single", "1e300"),
        ("flag", "yes"),
        ("raw", "%"),
        ("amount", "1,5"),
        ("day", "01.02.2020"),
    ],
)
def test_text_that_is_no_value_names_its_row(column, text):
    table = pa.table({"id": ["1", "2"]} | {column: ["1" if column == "id" else None, text]})
    with pytest.raises(WrongType, match=f"^f.csv, row 2, column {column}: "):
        text_to_arrow(ALL, table, place)


def test_an_index_that_is_a_column_of_the_table_is_not_passed_over():
    frame = pd.DataFrame({"id": [1], "name": ["a"], "whole": [2]})
    for index in ("id", "NAME", ["id", "name"]):
        named = frame.rename(columns={"name": "NAME"}) if index == "NAME" else frame
        with pytest.raises(DataError, match=r"is the frame's index.*pass frame\.reset_index\(\)"):
            rows_to_arrow(ALL, named.set_index(index))
    assert rows_to_arrow(ALL, frame.rename_axis("row")).num_rows == 1


def test_what_arrow_has_no_type_for_is_refused_by_its_row():
    with pytest.raises(WrongType, match=r"row 1, column real: \(1\+2j\) is not a DOUBLE"):
        rows_to_arrow(ALL, pd.DataFrame({"id": [1], "real": [1 + 2j]}))


def test_a_lazy_frame_is_refused_with_what_to_call():
    with pytest.raises(WrongType, match=r"not as LazyFrame; pass what its collect\(\) gives"):
        rows_to_arrow(ALL, pl.LazyFrame({"id": [1]}))


def test_arrow_columns_are_taken_however_they_are_stored():
    rows = pa.table(
        {
            "id": pa.RunEndEncodedArray.from_arrays([2], [7]),
            "name": pa.array(['{"a": 1}', None], pa.json_()),
            "raw": pa.array([b"0" * 16, None], pa.uuid()),
        }
    )
    stored = rows_to_arrow(ALL, rows)
    assert stored["id"].to_pylist() == [7, 7]
    assert stored["name"].to_pylist() == ['{"a": 1}', None]
    assert stored["raw"].to_pylist() == [b"0" * 16, None]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pl.DataFrame({"id": [1], "raw": pl.Series([object()], dtype=pl.Object)}), "dtype Object"),
        (pl.DataFrame({"id": pl.Series([1], dtype=pl.Int128)}), "can't be had as Arrow"),
        (
            pa.table(
                {
                    "id": [1],
                    "name": pa.UnionArray.from_dense(
                        pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array(["x"])]
                    ),
                }
            ),
            "'x' is not a STRING; it is in a column of another Arrow type",
        ),
        ([{"id": 1, "local": "2024-01-01T00:00:00Z"}], "it has a time zone"),
    ],
)
def test_what_can_not_be_taken_is_not_taken_for_something_else(rows, message):
    with pytest.raises(WrongType, match=message):
        rows_to_arrow(ALL, rows)


@pytest.mark.parametrize(
    ("text", "span"),
    {
        "1 02:03:04.5": dt.timedelta(1, 2 * 3600 + 3 * 60 + 4, 500_000),
        "-0 00:00:00.000001": -dt.timedelta(microseconds=1),
        "23:59:59": dt.timedelta(seconds=86_399),
        "0 24:00:00": None,
        "0 00:60:00": None,
        "0 00:00:60": None,
        "a day": None,
        "": None,
    }.items(),
)
def test_text_of_an_interval_is_days_and_a_time_of_day(text, span):
    schema = TableSchema.of("spans", {"id": "INT", "span": "INTERVAL DAY TO SECOND"}, "id")
    if span is None:
        with pytest.raises(WrongType, match="pass a timedelta, or text of days and time"):
            rows_to_arrow(schema, [{"id": 1, "span": text}])
    else:
        found = rows_to_arrow(schema, [{"id": 1, "span": text}])
        assert found["span"].to_pylist() == [span]
