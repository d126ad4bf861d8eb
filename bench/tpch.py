"""What it costs to keep TPC-H queries current, beside recomputing them with the same engine.

    python bench/tpch.py [--scale 0.1] [--engines spark,sail] [--queries q1,q3,q4,q6,q12]
                         [--keys uniform] [--json bench/results/tpch.json]

Each view is alone in a copy of one database. Changes are of orders and lineitem: inserts, updates
(also of join and group keys), moves and deletes (everview.tpch.changes). `recompute` is the view's
query on the same engine from the same store, at the second try. Epochs of each size are run several
times; p50 and p99 are of those. `together` has all the views in one database.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import everview as ev
from everview import tpch
from everview.load import load
from everview.tpch import changes

NEEDED = {
    "customer": ["c_custkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": None,
    "lineitem": None,
}
REPEATS = {10: 5, 100: 7, 1_000: 7, 10_000: 5, 100_000: 3}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="everview-bench-") as directory:
        base = _base(Path(directory), options.scale)
        results = {
            engine: _engine(engine, base, Path(directory), options)
            for engine in options.engines.split(",")
        }
    found = {"scale": options.scale, "keys": options.keys, "engines": results}
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--engines", default="spark,sail")
    parser.add_argument("--queries", default="q1,q3,q4,q6,q12")
    parser.add_argument("--keys", choices=["uniform", "zipf"], default="uniform")
    parser.add_argument("--sizes", default="10,100,1000,10000,100000")
    parser.add_argument("--together", action="store_true", help="also all the views at once")
    parser.add_argument("--json", help="write the results here")
    return parser.parse_args()


def _base(directory: Path, scale: float) -> Path:
    """A database with the eight tables, and no log."""
    tpch.generate(directory, scale)
    path = directory / "base.ev"
    with ev.open(path, create=True) as db:
        tpch.create_tables(db)
        for name in tpch.KEYS:
            load(db.table(name), str(directory / f"{name}.parquet"))
            db.store.trim(name)
    return path


def _engine(engine: str, base: Path, directory: Path, options: argparse.Namespace) -> Any:
    queries = options.queries.split(",")
    groups = {query: [query] for query in queries}
    if options.together:
        groups["together"] = queries
    found = {}
    for name, views in groups.items():
        path = shutil.copytree(base, directory / f"{engine}-{name}.ev")
        with ev.open(path, engine=engine) as db:
            found[name] = _measure(db, views, options)
        shutil.rmtree(path)
        print(f"{engine:5} {name:9} {_line(found[name])}", flush=True)
    return found


def _measure(db: ev.Database, views: list[str], options: argparse.Namespace) -> Any:
    recompute = min(_recompute(db, views) for _ in range(2))
    for view in views:
        db.sql(f"CREATE MATERIALIZED VIEW {view} AS {tpch.QUERIES[view]}")
    begun = time.perf_counter()
    assert not db.maintain().failed
    found: dict[str, Any] = {
        "recompute_seconds": recompute,
        "load_seconds": time.perf_counter() - begun,
        "epochs": {},
    }
    rows = {name: db.table(name).to_arrow(columns=columns) for name, columns in NEEDED.items()}
    stream = changes.Changes(rows, np.random.default_rng(7), keys=options.keys)
    _epoch(db, stream, 1_000)
    for size in map(int, options.sizes.split(",")):
        runs = [_epoch(db, stream, size) for _ in range(REPEATS[size])]
        times = sorted(seconds for _, seconds in runs)
        found["epochs"][size] = {
            "p50": statistics.median(times),
            "p99": times[-1],
            "changes_per_second": statistics.median(count / took for count, took in runs),
            "faster_than_recompute": recompute / statistics.median(times),
        }
    found["state"] = _state(db, views)
    found["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def _recompute(db: ev.Database, views: list[str]) -> float:
    begun = time.perf_counter()
    for view in views:
        db.sql(tpch.QUERIES[view])
    return time.perf_counter() - begun


def _epoch(db: ev.Database, stream: changes.Changes, size: int) -> tuple[int, float]:
    count = changes.apply(db, stream.epoch(size, changes.ORDERS_AND_LINES))
    begun = time.perf_counter()
    report = db.maintain()
    assert not report.failed
    return count, time.perf_counter() - begun


def _state(db: ev.Database, views: list[str]) -> dict[str, int]:
    """Rows and bytes of the operators' state and of the views."""
    states = {
        state
        for view in views
        for state in (db.store.document(f"view/{view}") or {})["states"].values()
    }
    shards = (db.store.document(f"view/{views[0]}") or {})["shards"]
    sizes = [db.store.shard(state, shard).size() for state in states for shard in shards]
    return {"rows": sum(rows for rows, _ in sizes), "bytes": sum(size for _, size in sizes)}


def _line(found: dict[str, Any]) -> str:
    epochs = "  ".join(
        f"{size}: {one['p50']:.2f} s ({one['faster_than_recompute']:.1f}x, "
        f"{one['changes_per_second']:,.0f}/s)"
        for size, one in found["epochs"].items()
    )
    load_ratio = found["load_seconds"] / found["recompute_seconds"]
    size = found["state"]["bytes"] / 1e6
    return (
        f"recompute {found['recompute_seconds']:.2f} s  load {load_ratio:.1f}x of it  "
        f"state {size:.0f} MB  {epochs}"
    )


if __name__ == "__main__":
    main()
