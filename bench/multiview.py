"""Thousands of members of one view: what a load, an epoch and one more member cost.

    python bench/multiview.py [--scale 0.1] [--engine sail] [--members 10,100,1000,10000]
                              [--queries q1,q3,q4,q6,q10,q14,range] [--sharing full,selection,named]
                              [--json FILE] [--directory DIR]

A query of TPC-H is a view with parameters, and its members have distinct random values: more of
them than the rules of TPC-H give. `load` is the first load of the view with all its members.
`epoch` is one of 1,000 changes of orders and lineitem, `write` what comes before it, `more` what it
takes to add one member. `selection` is the same view without cells: each member adds up its rows.
`named` are ordinary views, each with a name and constants of its own, created by one script;
`create` is what that takes; not for q14, whose division keeps such views apart, and not for q3 and
q10, as rows that tie do. `range` shows the orders in a narrow range of prices.
Each measurement has a process of its own; `peak` is its most memory, without files that it maps.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import everview as ev
from online import Run, seconds
from tpch import base_database

CHANGES, EPOCHS, WARM_UP = 1_000, 9, 2
DAYS = np.datetime64("1992-01-02"), 2_500
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
QUERIES = {
    "q1": (
        "d DATE",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, "
        "sum(l_extendedprice) AS sum_base_price, "
        "sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, "
        "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, "
        "avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, "
        "avg(l_discount) AS avg_disc, count(*) AS count_order FROM lineitem "
        "WHERE l_shipdate <= :d GROUP BY l_returnflag, l_linestatus",
    ),
    "q3": (
        "segment STRING, d DATE",
        "SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, "
        "o_shippriority FROM customer, orders, lineitem WHERE c_mktsegment = :segment AND "
        "c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate < :d AND l_shipdate > "
        ":d GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate "
        "LIMIT 10",
    ),
    "q4": (
        "d DATE, e DATE",
        "SELECT o_orderpriority, count(*) AS order_count FROM orders WHERE o_orderdate >= :d AND "
        "o_orderdate < :e AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND "
        "l_commitdate < l_receiptdate) GROUP BY o_orderpriority",
    ),
    "q6": (
        "d DATE, e DATE, low DECIMAL(15,2), high DECIMAL(15,2), quantity DECIMAL(15,2)",
        "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= :d "
        "AND l_shipdate < :e AND l_discount BETWEEN :low AND :high AND l_quantity < :quantity",
    ),
    "q10": (
        "d DATE, e DATE",
        "SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, "
        "n_name, c_address, c_phone, c_comment FROM customer, orders, lineitem, nation WHERE "
        "c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= :d AND o_orderdate < "
        ":e AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, "
        "c_acctbal, c_phone, n_name, c_address, c_comment ORDER BY revenue DESC LIMIT 20",
    ),
    "q14": (
        "d DATE, e DATE",
        "SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * "
        "(1 - l_discount) ELSE 0 END) / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue "
        "FROM lineitem, part WHERE l_partkey = p_partkey AND l_shipdate >= :d AND l_shipdate < :e",
    ),
    "range": (
        "low DECIMAL(15,2), high DECIMAL(15,2)",
        "SELECT o_orderkey, o_orderdate, o_totalprice FROM orders WHERE o_totalprice >= :low AND "
        "o_totalprice < :high",
    ),
}


def members(query: str, number: int, chance: np.random.Generator) -> pa.Table:
    """Distinct random values of the parameters; of q1 no more than there are days."""
    begin, days = DAYS
    start = begin + chance.integers(0, days, 3 * number)
    end = start + chance.integers(1, 700, 3 * number)
    low = chance.integers(0, 8, 3 * number)
    values = {"d": pa.array(start, pa.date32()), "e": pa.array(end, pa.date32())}
    if query == "range":
        low = 85_000 + chance.integers(0, 40_000_000, 3 * number)
        values["low"], values["high"] = _hundredths(low), _hundredths(low + 1_000)
        return pa.table({"low": values["low"], "high": values["high"]}).slice(0, number)
    values["low"] = _hundredths(low)
    values["high"] = _hundredths(low + chance.integers(0, 4, 3 * number))
    values["segment"] = pa.array(np.array(SEGMENTS)[chance.integers(0, 5, 3 * number)])
    values["quantity"] = _hundredths(100 * chance.integers(2, 51, 3 * number))
    names = [part.split()[0] for part in QUERIES[query][0].split(", ")]
    table = pa.table({name: values[name] for name in names})
    return table.group_by(names, use_threads=False).aggregate([]).slice(0, number)


def _named(sql: str, name: str, values: dict[str, Any]) -> str:
    """A CREATE of an ordinary view with these values."""
    for parameter, value in values.items():
        text = f"DATE '{value}'" if isinstance(value, date) else str(value)
        sql = re.sub(rf":{parameter}\b", text, sql)
    return f"CREATE MATERIALIZED VIEW {name} AS {sql}"


def _hundredths(numbers: np.ndarray) -> pa.Array:
    return pa.array([Decimal(int(number)).scaleb(-2) for number in numbers], pa.decimal128(15, 2))


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """The list gets the most gigabytes that this process had while the block ran."""
    peak, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            (own,) = (int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            peak[0] = max(peak[0], own / 2**20)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def measured_apart(path: Path, engine: str, *what: Any) -> dict[str, Any]:
    """`measure` in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, path, engine, *what).result()


def _measured(path: Path, engine: Any, *what: Any) -> dict[str, Any]:
    with ev.open(path, engine=engine) as db, peak_memory() as peak:
        found = measure(Run(db), *what)
    return found | {"peak_gigabytes": peak[0]}


def measure(run: Run, query: str, number: int, sharing: str) -> dict[str, Any]:
    parameters, sql = QUERIES[query]
    chance = np.random.default_rng(3)
    rows = members(query, number + EPOCHS, chance)
    db = run.db
    if sharing == "named":
        statements = [_named(sql, f"v{n}", row) for n, row in enumerate(rows.to_pylist())]
        create = seconds(lambda: list(db.run_script(statements[EPOCHS:])))
    else:
        options = f"WITH (sharing = '{sharing}')"
        statement = f"CREATE MATERIALIZED VIEW v ({parameters}) {options} AS {sql}"
        create = seconds(lambda: db.sql(statement))
        db.view("v").members.put(rows.slice(EPOCHS))
    load = run.epoch()
    assert {db.view(name).status for name in db.views} == {"live"}
    epochs, writes, more = [], [], []
    for _ in range(WARM_UP + EPOCHS):
        writes.append(run.write(CHANGES))
        epochs.append(run.epoch())
    for place in range(EPOCHS):
        if sharing == "named":
            comes = seconds(lambda: db.sql(statements[place]))  # noqa: B023
        else:
            comes = seconds(lambda: db.view("v").members.put(rows.slice(place, 1)))  # noqa: B023
        more.append(comes + run.epoch())
    return {
        "members": rows.num_rows - EPOCHS,
        "rows": sum(len(db.view(name)) for name in db.views),
        "create_seconds": create,
        "load_seconds": load,
        "epoch_ms": 1e3 * statistics.median(epochs[WARM_UP:]),
        "write_ms": 1e3 * statistics.median(writes[WARM_UP:]),
        "more_ms": 1e3 * statistics.median(more),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--engine", choices=["spark", "sail"], default="sail")
    parser.add_argument("--members", default="1,10,100,1000,10000")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--sharing", default="full")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--directory", help="keep the tables here, and use them in the next run")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as directory:
        base = base_database(Path(options.directory or directory), options.scale)
        for sharing in options.sharing.split(","):
            for query in options.queries.split(","):
                if sharing == "named" and query in ("q3", "q10", "q14"):
                    continue
                for number in map(int, options.members.split(",")):
                    path = shutil.copytree(base, Path(directory) / "run.ev")
                    found = measured_apart(path, options.engine, query, number, sharing)
                    shutil.rmtree(path)
                    results.setdefault(sharing, {}).setdefault(query, {})[number] = found
                    _print(sharing, query, found, results[sharing][query])
    if options.json:
        document = {"scale": options.scale, "engine": options.engine, **results}
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n")


def _print(sharing: str, query: str, found: dict[str, Any], of_query: dict[int, Any]) -> None:
    first = next(iter(of_query.values()))
    ratios = {key: found[key] / first[key] for key in ("load_seconds", "epoch_ms")}
    print(
        f"{sharing:9} {query:5} {found['members']:6,} members, {found['rows']:7,} rows: create "
        f"{found['create_seconds']:.1f} s, load "
        f"{found['load_seconds']:.1f} s ({ratios['load_seconds']:.1f}x), epoch "
        f"{found['epoch_ms']:.0f} ms ({ratios['epoch_ms']:.1f}x), one more member "
        f"{found['more_ms']:.0f} ms, peak {found['peak_gigabytes']:.1f} GB",
        flush=True,
    )


if __name__ == "__main__":
    main()
