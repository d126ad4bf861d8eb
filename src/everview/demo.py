"""The demo: a small TPC-H shop is loaded, a view follows its changes, Spark reads its tables.

Uses only what a user can use. Everything it prints was just measured or read.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import everview as ev
from everview import tpch
from everview.load import load

QUERY = """
SELECT o_orderpriority AS priority, count(*) AS orders, sum(o_totalprice) AS total
FROM orders GROUP BY o_orderpriority
"""
EPOCHS = 3


def run(say: Callable[[str], None], scale: float = 0.02, seconds: float = 5.0) -> None:
    """Run the demo in a temporary directory, telling `say` what happens."""
    with tempfile.TemporaryDirectory(prefix="everview-demo-") as directory:
        files = Path(directory)
        say(f"generating TPC-H data, scale factor {scale:g}")
        tpch.generate(files, scale)
        with ev.open(files / "shop.ev", create=True) as db:
            _load(db, files, say)
            _create_view(db, say)
            for _ in range(EPOCHS):
                _change(db, seconds / EPOCHS, say)
                _maintain(db, say)
            _look_at_log(db, say)
            _compare(db, say)


def _load(db: ev.Database, files: Path, say: Callable[[str], None]) -> None:
    tpch.create_tables(db)
    begun = time.monotonic()
    rows = sum(load(db.table(name), str(files / f"{name}.parquet")) for name in tpch.KEYS)
    took = time.monotonic() - begun
    size = sum(table.bytes for table in db.status())
    say(
        f"loaded 8 tables, {rows:,} rows, in {took:.1f} s ({rows / took:,.0f} rows/s), "
        f"{size / 1e6:.0f} MB on disk with their change logs"
    )


def _change(db: ev.Database, seconds: float, say: Callable[[str], None]) -> None:
    """Rounds of new, corrected and cancelled orders until the time is over."""
    orders, lines = db.table("orders"), db.table("lineitem")
    keys = orders.to_arrow(columns=["o_orderkey"])["o_orderkey"].to_pylist()
    chance, made, changes = random.Random(7), max(keys), 0
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + seconds:
        picked = orders.get_many(chance.sample(keys, 200))
        dearer = pc.add(picked["o_totalprice"], pa.scalar(Decimal("1.00")))
        dearer = dearer.cast(picked.schema.field("o_totalprice").type)
        changes += orders.put(picked.set_column(3, "o_totalprice", dearer)).rows
        fresh = [{"o_orderkey": made + n, "o_totalprice": "99.50"} for n in range(1, 51)]
        changes += orders.put([row | {"o_orderpriority": "1-URGENT"} for row in fresh]).rows
        made += len(fresh)
        gone = chance.sample(keys, 20)
        changes += orders.delete(gone).rows
        changes += lines.delete([(key, number) for key in gone for number in range(1, 8)]).rows
    say(
        f"changed orders and lineitem for {now - begun:.1f} s: {changes:,} puts and deletes "
        f"({changes / (now - begun):,.0f} a second, in small batches from one thread)"
    )


def _look_at_log(db: ev.Database, say: Callable[[str], None]) -> None:
    orders = db.table("orders")
    last = None
    for batch in orders.changes():
        last = batch.slice(batch.num_rows - 1).to_pylist()[0]
    if last is not None:
        before, after = last["before"], last["after"]
        prices = [row and row["o_totalprice"] for row in (before, after)]
        say(
            f"last change of region {last['region']}: {last['op']}, sequence {last['sequence']}, "
            f"o_totalprice {prices[0]} -> {prices[1]}"
        )


def _create_view(db: ev.Database, say: Callable[[str], None]) -> None:
    say(f"starting Spark, and creating a view{QUERY.rstrip()}")
    begun = time.monotonic()
    db.sql(f"CREATE MATERIALIZED VIEW priorities AS {QUERY}")
    created = time.monotonic()
    db.maintain()
    say(
        f"created after {created - begun:.1f} s, loaded from {len(db.table('orders')):,} orders "
        f"in {time.monotonic() - created:.1f} s"
    )


def _maintain(db: ev.Database, say: Callable[[str], None]) -> None:
    report = db.maintain()
    urgent = db.view("priorities").get("1-URGENT")
    say(
        f"epoch {db.view('priorities').epoch}: {report.changes:,} changes of orders in "
        f"{report.seconds:.1f} s; the view says {urgent}"
    )


def _compare(db: ev.Database, say: Callable[[str], None]) -> None:
    say("recomputing the view with Spark from the same tables")
    begun = time.monotonic()
    result = db.sql(QUERY + " ORDER BY priority")
    say(f"{result}\n({time.monotonic() - begun:.1f} s)")
    kept = {row["priority"]: row for row in db.view("priorities").scan()}
    agree = kept == {row["priority"]: row for row in result}
    say(f"the view has the same rows: {'yes' if agree else 'NO'}")
