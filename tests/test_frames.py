"""Tables, views and results as pandas and Polars frames, as HTML, and as what `repr` shows."""

from __future__ import annotations

import builtins
import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import everview as ev
from everview.errors import DataError
from everview.results.result import Result

COLUMNS = {
    "id": "BIGINT",
    "small": "INT",
    "flag": "BOOLEAN",
    "price": "DECIMAL(20,2)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "took": "INTERVAL DAY TO SECOND",
    "name": "STRING",
    "tags": "ARRAY<STRING>",
    "prices": "MAP<STRING, INT>",
}
FULL: dict[str, Any] = {
    "id": 2**62 + 1,
    "small": 5,
    "flag": True,
    "price": Decimal("123456789012345678.90"),
    "day": dt.date(2020, 1, 2),
    "at": dt.datetime(1600, 1, 1, tzinfo=dt.UTC),
    "local": dt.datetime(2020, 1, 2, 3, 4, 5, 6),
    "took": dt.timedelta(days=-1, microseconds=1),
    "name": "<b>&",
    "tags": ["a", None],
    "prices": [("x", 1)],
}
EMPTY = dict.fromkeys(COLUMNS) | {"id": 1}


@pytest.fixture
def things(db: ev.Database) -> ev.Table:
    table = db.create_table("things", COLUMNS, "id")
    table.put([FULL, EMPTY])
    return table


def test_pandas_frames_lose_nothing(things: ev.Table) -> None:
    frame = things.to_pandas()
    assert list(frame.columns) == list(COLUMNS)
    assert frame["id"].tolist() == [1, 2**62 + 1]
    assert frame["small"].dtype == pd.Int32Dtype()
    assert frame["flag"].dtype == pd.BooleanDtype()
    assert frame["price"][1] == FULL["price"]
    assert frame["day"][1] == FULL["day"]
    assert frame["at"][1] == pd.Timestamp("1600-01-01", tz="UTC")
    assert frame["took"][1] == pd.Timedelta(FULL["took"])
    assert list(frame["tags"][1]) == ["a", None]
    assert things.put(frame).unchanged == 2, "the frame is what the table has"
    assert len(things.to_pandas(columns=["id"]).columns) == 1


def test_large_integers_keep_their_digits_beside_null() -> None:
    frame = Result(pa.table({"n": pa.array([2**62 + 1, None], pa.int64())})).to_pandas()
    assert frame["n"][0] == 2**62 + 1
    assert frame["n"].isna().tolist() == [False, True]


def test_columns_of_one_name_stay_two_in_pandas() -> None:
    twice = Result(pa.table([[1], [2]], names=["a", "a"]))
    assert twice.to_pandas().to_numpy().tolist() == [[1, 2]]
    with pytest.raises(DataError, match="two columns are called a"):
        twice.to_polars()


def test_polars_frames_lose_nothing(things: ev.Table) -> None:
    frame = things.to_polars()
    assert isinstance(frame, pl.DataFrame)
    row = frame.row(1, named=True)
    for name in ("id", "small", "flag", "price", "day", "at", "local", "took", "name", "tags"):
        assert row[name] == FULL[name], name
    assert things.put(frame.drop("prices")).rows == 1  # the map is NULL now
    assert Result(pa.table({"a": [1]})).to_polars().rows() == [(1,)]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_what_is_not_installed_is_named(
    things: ev.Table, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return real(name, *others)

    monkeypatch.delitem(sys.modules, package)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=f"pip install {package}"):
        getattr(things, f"to_{package}")()


def test_html_escapes_values_and_tells_null_from_text(db: ev.Database, things: ev.Table) -> None:
    shown = things._repr_html_()
    assert "&lt;b&gt;&amp;" in shown
    assert "<b>" not in shown
    assert shown.count(">NULL</span>") == len(COLUMNS) - 1
    assert "DECIMAL(20,2)" in shown
    assert 'text-align: right">123456789012345678.90<' in shown
    assert shown.endswith("<div>2 rows</div>")
    named = Result(pa.table({"<i>": ["NULL", None]}))._repr_html_()
    assert "<i>" not in named
    assert named.count(">NULL<") == 2
    assert named.count(">NULL</span>") == 1
    assert Result(message="1 < 2")._repr_html_() == "<div>1 &lt; 2</div>"


def test_html_has_the_first_rows_and_says_how_many_more(db: ev.Database) -> None:
    table = db.create_table("t", {"k": "INT"}, "k")
    table.put([{"k": k} for k in range(1_025)])
    shown = table._repr_html_()
    assert shown.count("<tr>") == 21
    assert "… 1,005 more" in shown
    assert "<td" not in Result(pa.table({"a": pa.array([], pa.int8())}))._repr_html_()


def test_repr_says_how_things_are_and_never_fails(tmp_path: Path) -> None:
    db = ev.open(tmp_path / "x.ev", create=True)
    table = db.create_table("t", {"k": "INT"}, "k")
    table.put({"k": 1})
    other = db.create_table("u", {"k": "INT"}, "k")
    assert repr(table) == "<table t: 1 row>"
    assert repr(db) == f"<everview database {db.path}: 2 tables, 0 views, epoch 0>"
    db.drop_table("u")
    assert repr(other) == "<table u: dropped>"
    assert "there is no table u" in other._repr_html_()
    pin = db.pin("t")
    assert repr(pin) == "<pin of epoch 0>"
    pin.close()
    db.close()
    assert repr(table) == "<table t: the database is closed>"
    assert repr(db) == f"<everview database {db.path}: the database is closed>"
    assert "the database is closed" in table._repr_html_()
    assert repr(pin).startswith("<pin")


def test_names_are_properties_and_may_be_called_as_ever(things: ev.Table, db: ev.Database) -> None:
    assert db.tables == ["things"] == db.tables()
    assert db.views == [] == db.views()
