"""Random changes of the TPC-DS tables: what they promise about keys, values and references."""

from __future__ import annotations

from collections import Counter
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

import everview as ev
from everview.tpch.changes import apply
from tests.following import follow, keys_in
from tests.tpcds.changes import Changes, Referring
from tests.tpcds.tables import RETURNS, referred
from tests.tpcds.wishes import Wishes

KEYS = {
    "date_dim": ("d_date_sk",),
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "item": ("i_item_sk",),
}
QUERY = """
    SELECT i_color, sum(ss_quantity) FROM store_sales, date_dim d1, item
    WHERE ss_sold_date_sk = d1.d_date_sk AND ss_item_sk = i_item_sk
      AND d1.d_year = 1999 + 2 AND (i_color IN ('red', 'blue') OR i_color = 'green')
      AND d_date BETWEEN '2001-02-01' AND cast('2001-02-01' AS DATE) + INTERVAL 30 DAYS
    GROUP BY i_color
"""
Tables = dict[str, pa.Table]


@pytest.fixture(scope="module")
def tables() -> Tables:
    numbers = np.arange(400, dtype=np.int32)
    key = pa.field("d_date_sk", pa.int32(), False)
    return {
        "date_dim": pa.table(
            [pa.array(numbers), pa.array(numbers % 5 + 1998), pa.array([date(2001, 2, 3)] * 400)],
            schema=pa.schema([key, ("d_year", pa.int32()), ("d_date", pa.date32())]),
        ),
        "item": pa.table(
            [pa.array(numbers[:50]), pa.array(["pink", None] * 25)],
            schema=pa.schema([pa.field("i_item_sk", pa.int32(), False), ("i_color", pa.string())]),
        ),
        "store_sales": _facts("ss", numbers, "ss_sold_date_sk", "ss_customer_sk", "ss_quantity"),
        "store_returns": _facts("sr", numbers[:40], "sr_returned_date_sk", "sr_customer_sk"),
    }


def _facts(prefix: str, numbers: np.ndarray, *others: str) -> pa.Table:
    keys = [
        pa.field(f"{prefix}_{name}", pa.int32(), False) for name in ("item_sk", "ticket_number")
    ]
    schema = pa.schema([*keys, *(pa.field(name, pa.int32()) for name in others)])
    return pa.table([numbers % 50, numbers // 2, *[numbers] * len(others)], schema=schema)


def stream(tables: Tables, seed: int = 1, calendars: tuple[str, ...] = ()) -> Changes:
    query = sqlglot.parse_one(QUERY, dialect="spark")
    assert isinstance(query, exp.Query)
    return Changes(tables, KEYS, Referring(referred, RETURNS, calendars), [query], seed)


def test_each_row_changes_once_and_only_rows_that_are_there_are_deleted(tables: Tables) -> None:
    keys = {name: set(keys_in(KEYS[name], rows)) for name, rows in tables.items()}
    before, seen, revived = {n: set(k) for n, k in keys.items()}, Counter[str](), 0
    changes = stream(tables)
    for _ in range(8):
        gone = {name: before[name] - keys[name] for name in keys}
        seen += follow(KEYS, keys, changes.batch(150))
        revived += sum(len(gone[name] & keys[name]) for name in keys)
    assert 1000 < seen.total() < 1400
    assert min(seen.values()) > 120
    assert revived > 20
    assert all(keys.values())


def test_a_seed_gives_the_same_batches_again(tables: Tables) -> None:
    one, same, other = (stream(tables, seed) for seed in (5, 5, 6))
    for _ in range(3):
        batch = one.batch(100)
        assert batch == same.batch(100)
        assert batch != other.batch(100)


def test_rows_get_values_of_others_nulls_and_what_the_queries_ask_for(tables: Tables) -> None:
    changes = stream(tables)
    batches = [changes.batch(200) for _ in range(6)]
    colors = {c for b in batches for c in b["item"].puts["i_color"].to_pylist()}
    assert {"pink", None, "red", "blue", "green"} <= colors
    dates = [d for b in batches for d in b["store_sales"].puts["ss_sold_date_sk"].to_pylist()]
    assert None in dates
    years = tables["date_dim"]["d_year"].to_pylist()
    asked = sum(d is not None and d < 400 and years[d] == 2001 for d in dates)
    assert asked > 0.4 * len(dates)  # one of five days is of that year


def test_new_returns_are_of_sales_and_by_their_customers(tables: Tables) -> None:
    changes = stream(tables)
    sales = set(keys_in(KEYS["store_sales"], tables["store_sales"]))
    new = 0
    for _ in range(5):
        batch = changes.batch(200)
        sales.update(keys_in(KEYS["store_sales"], batch["store_sales"].puts))
        returns = set(keys_in(KEYS["store_returns"], batch["store_returns"].puts))
        assert returns <= sales
        new += len(returns - set(keys_in(KEYS["store_returns"], tables["store_returns"])))
    assert new > 20


def test_rows_of_a_calendar_are_there_at_most_once(tables: Tables, db: ev.Database) -> None:
    days = tables["date_dim"].set_column(1, "d_year", pa.array(range(400), pa.int32()))
    db.create_table("date_dim", days.schema, KEYS["date_dim"])
    db.table("date_dim").put(days)
    changes = stream({**tables, "date_dim": days}, calendars=("date_dim",))
    for _ in range(5):
        apply(db, {"date_dim": changes.batch(200)["date_dim"]})
    found = db.table("date_dim").to_arrow()
    assert 300 < len(found) < 400
    assert len(set(found["d_year"].to_pylist())) == len(found)
    assert found["d_year"] != found["d_date_sk"]


def test_tables_hold_what_the_batches_say(tables: Tables, db: ev.Database) -> None:
    for name, rows in tables.items():
        db.create_table(name, rows.schema, KEYS[name])
        db.table(name).put(rows)
    keys = {name: set(keys_in(KEYS[name], rows)) for name, rows in tables.items()}
    changes = stream(tables)
    for _ in range(3):
        batch = changes.batch(100)
        assert 0 < apply(db, batch) <= sum(map(len, batch.values()))
        follow(KEYS, keys, batch)
    for name in tables:
        assert set(keys_in(KEYS[name], db.table(name).to_arrow())) == keys[name]


def test_a_wish_takes_one_branch_of_an_or_and_knows_what_joins(tables: Tables) -> None:
    schemas = {name: rows.schema for name, rows in tables.items()}
    query = sqlglot.parse_one(QUERY, dialect="spark")
    assert isinstance(query, exp.Query)
    wishes = Wishes([query], schemas, np.random.default_rng(1))
    colors = set()
    for _ in range(50):
        wish = wishes.draw("item")
        assert wish is not None
        assert wish.parts["d1"].values["d_year"] == 2001
        assert wish.parts["d1"].values["d_date"] in (date(2001, 2, 1), date(2001, 3, 3))
        assert wish.equal_to(("d1", "d_date_sk")) == {
            ("d1", "d_date_sk"),
            ("store_sales", "ss_sold_date_sk"),
        }
        colors.add(wish.parts["item"].values["i_color"])
    assert colors == {"red", "blue", "green"}
    assert wishes.draw("store_returns") is None
