"""What it costs to keep TPC-H queries current, beside recomputing them with the same engine.

    python bench/tpch.py [--scale 0.1] [--engines spark,sail] [--queries q1,q3,q4,q6,q12]
                         [--keys uniform] [--together] [--json FILE] [--directory DIR]

Each view is alone in a copy of one database. Changes are of orders and lineitem, of which a view
gets those that it reads: inserts, updates (also of join and group keys), moves and deletes
(everview.tpch.changes). `recompute` is the view's
query on the same engine from the same store, at the second try. Epochs of each size are run several
times; p50 and p99 are of those. `state` is on disk, as loaded; `--columns` compares it with the
bytes in memory of the columns it must keep, which takes long. `--together` has all the views in
one database.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import everview as ev
from everview import tpch
from everview.catalog import EPOCH, NO_EPOCH, VIEWS, ViewRecord
from everview.load.files import load
from everview.plan.nodes import Aggregate, Node
from everview.programs.program import Program
from everview.programs.step import Step
from everview.schema import quoted
from everview.tpch import changes

NEEDED = {
    "customer": ["c_custkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "orders": None,
    "lineitem": None,
}
WARM_UP = 5  # epochs of every size that are not measured
REPEATS = {10: 9, 100: 9, 1_000: 9, 10_000: 7, 100_000: 7}


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as directory:
        base = base_database(Path(options.directory or directory), options.scale)
        results = {
            engine: _engine(engine, base, Path(directory), options)
            for engine in options.engines.split(",")
        }
    found = {"scale": options.scale, "keys": options.keys, "engines": results}
    print("\n" + table(found))
    if options.json:
        merged = _merged(Path(options.json), found)
        Path(options.json).write_text(json.dumps(merged, indent=2) + "\n")


def _merged(path: Path, found: dict[str, Any]) -> dict[str, Any]:
    """The results, with those of other views and engines that the file has, if of the same data."""
    before = json.loads(path.read_text()) if path.exists() else {}
    if any(before.get(what) != found[what] for what in ("scale", "keys")):
        return found
    engines = before["engines"] | found["engines"]
    both = {name: before["engines"].get(name, {}) | views for name, views in engines.items()}
    return found | {"engines": both}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--engines", default="spark,sail")
    parser.add_argument("--queries", default="q1,q3,q4,q6,q12")
    parser.add_argument("--keys", choices=["uniform", "zipf"], default="uniform")
    parser.add_argument("--sizes", default="10,100,1000,10000,100000")
    parser.add_argument("--together", action="store_true", help="also all the views at once")
    parser.add_argument("--columns", action="store_true", help="also the bytes of state's columns")
    parser.add_argument("--json", help="write the results here, beside those of other views")
    parser.add_argument("--directory", help="keep the tables here, and use them in the next run")
    return parser.parse_args()


def base_database(directory: Path, scale: float) -> Path:
    """A database with the eight tables, and no log."""
    path, files = directory / f"tpch-{scale:g}.ev", directory / f"tpch-{scale:g}"
    if path.exists():
        return path
    files.mkdir(exist_ok=True)
    tpch.generate(files, scale)
    made = path.with_suffix(".new")
    with ev.open(made, create=True) as db:
        tpch.create_tables(db)
        for name in tpch.KEYS:
            load(db.table(name), str(files / f"{name}.parquet"))
            db.store.trim(name)
    return made.rename(path)


def _engine(engine: str, base: Path, directory: Path, options: argparse.Namespace) -> Any:
    queries = options.queries.split(",")
    groups = {query: [query] for query in queries}
    if options.together:
        groups["together"] = queries
    found = {}
    for name, views in groups.items():
        path = shutil.copytree(base, directory / f"{engine}-{name}.ev")
        os.sync()  # or the copy would be written out while epochs are measured
        with ev.open(path, engine=engine) as db:
            found[name] = _measure(db, views, options)
        shutil.rmtree(path)
        print(f"{engine:5} {name:9} {_line(found[name])}", flush=True)
    return found


def _measure(db: ev.Database, views: list[str], options: argparse.Namespace) -> Any:
    memory = Memory()
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
    loaded = _sizes(db, views)
    known = {name: db.table(name).to_arrow(columns=columns) for name, columns in NEEDED.items()}
    stream = changes.Changes(known, np.random.default_rng(7), keys=options.keys)
    read = {table for view in views for table in db.view(view).tables}
    both = changes.ORDERS_AND_LINES
    # q2, q11 and q16 read neither: the same changes then cost them next to nothing
    shares = {name: share for name, share in both.items() if name in read} or dict(both)
    os.sync()
    for size in map(int, options.sizes.split(",")):
        for _ in range(WARM_UP):
            _epoch(db, stream, size, shares)
        runs = [_epoch(db, stream, size, shares) for _ in range(REPEATS.get(size, 5))]
        times = sorted(seconds for _, seconds in runs)
        found["epochs"][size] = {
            "p50": statistics.median(times),
            "p99": times[-1],
            "changes_per_second": statistics.median(count / took for count, took in runs),
            "faster_than_recompute": recompute / statistics.median(times),
        }
    found["peak_memory_bytes"] = memory.peak()
    found["state"] = {
        "rows": sum(rows for rows, _ in loaded),
        "bytes": sum(size for _, size in loaded),
        "bytes_after_epochs": sum(size for _, size in _sizes(db, views)),
    }
    if options.columns:
        found["state"]["bytes_of_columns"] = _bytes_of_columns(db, views)
    return found


def _recompute(db: ev.Database, views: list[str]) -> float:
    begun = time.perf_counter()
    for view in views:
        db.sql(tpch.QUERIES[view])
    return time.perf_counter() - begun


def _epoch(
    db: ev.Database, stream: changes.Changes, size: int, shares: dict[str, float]
) -> tuple[int, float]:
    count = changes.apply(db, stream.epoch(size, shares))
    begun = time.perf_counter()
    report = db.maintain()
    assert not report.failed
    return count, time.perf_counter() - begun


def _sizes(db: ev.Database, views: list[str]) -> list[tuple[int, int]]:
    """Rows and bytes of each shard of the operators and the views."""
    found = _records(db, views)
    states = {state for view in found for state in view.states.values()}
    shards = [(state, number) for state in states for number in found[0].shards]
    return [db.store.states.shard(*shard).size() for shard in shards]


def _records(db: ev.Database, views: list[str]) -> list[ViewRecord]:
    found = db.store.catalog.all(VIEWS)
    return [found[VIEWS[view]] for view in views]


def _bytes_of_columns(db: ev.Database, views: list[str]) -> int:
    """Bytes in memory of the columns that the operators and the views keep."""
    found = _records(db, views)
    epoch = db.store.catalog.get(EPOCH) or NO_EPOCH
    step = Step(db.store.address, found[0].shards, 0, epoch.number, None, epoch.positions)
    program = Program(db.engine.session, step, {})
    kept = {node.identity: node for view in found for node in _kept(view.plan)}
    of_operators = sum(_bytes(program, node) for node in kept.values())
    return of_operators + sum(db.view(view).to_arrow().nbytes for view in views)


def _kept(plan: Node) -> list[Node]:
    """The nodes whose rows are in state: an aggregate's own, and the inputs of other operators."""
    found: list[Node] = []
    for node in plan.walk():
        if node.is_operator:
            found.extend([node] if isinstance(node, Aggregate) else node.inputs())
    return found


def _bytes(program: Program, node: Node) -> int:
    frame = program.frame(node)
    if frame is None:
        return 0
    fixed, texts = 0, []
    for column in node.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            fixed += 4
            texts.append(f"coalesce(sum(octet_length({quoted(column.name)})), 0)")
        else:
            fixed += max(column.type.bit_width // 8, 1)
    (row,) = frame.selectExpr("count(*)", *texts).collect()
    return int(row[0] * fixed + sum(row[1:]))


def table(found: dict[str, Any]) -> str:
    """The results in Markdown: of each size the median epoch, how many times faster than
    recomputing it is, and changes a second."""
    sizes = list(
        dict.fromkeys(s for e in found["engines"].values() for v in e.values() for s in v["epochs"])
    )
    heads = [
        "view",
        "engine",
        "recompute",
        "load",
        "state",
        *(f"{int(s):,} changes" for s in sizes),
    ]
    rows = [heads, ["---"] * len(heads)]
    for engine, views in found["engines"].items():
        for view, one in views.items():
            epochs = [_cell(one["epochs"].get(size)) for size in sizes]
            ratio = one["load_seconds"] / one["recompute_seconds"]
            state = f"{one['state']['bytes'] / 1e6:,.1f} MB"
            rows.append(
                [view, engine, f"{one['recompute_seconds']:.1f} s", f"{ratio:.1f}x", state, *epochs]
            )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(epoch: dict[str, float] | None) -> str:
    if epoch is None:
        return ""
    faster, rate = epoch["faster_than_recompute"], epoch["changes_per_second"]
    return f"{epoch['p50']:.2f} s ({faster:.0f}x, {rate:,.0f}/s)"


class Memory:
    """The most memory this process and those below it had at once, as far as looks show."""

    def __init__(self) -> None:
        self._peak, self._ended = 0, threading.Event()
        self._looks = threading.Thread(target=self._look, daemon=True)
        self._looks.start()

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            self._peak = max(self._peak, sum(map(_resident, _family(os.getpid()))))

    def peak(self) -> int:
        self._ended.set()
        self._looks.join()
        return self._peak


def _family(process: int) -> list[int]:
    found = [process]
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _family(int(child))
    return found


def _resident(process: int) -> int:
    """Memory of a process without mapped files, what it shares divided by those that share it."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))
    return 0


def _line(found: dict[str, Any]) -> str:
    epochs = "  ".join(
        f"{size}: {one['p50']:.2f} s ({one['faster_than_recompute']:.1f}x, "
        f"{one['changes_per_second']:,.0f}/s)"
        for size, one in found["epochs"].items()
    )
    load_ratio = found["load_seconds"] / found["recompute_seconds"]
    state = found["state"]
    columns = state.get("bytes_of_columns")
    ratio = f"{state['bytes'] / columns:.1f}x its columns, " if columns else ""
    return (
        f"recompute {found['recompute_seconds']:.2f} s  load {load_ratio:.1f}x of it  "
        f"state {state['bytes'] / 1e6:.0f} MB ({ratio}"
        f"{state['bytes_after_epochs'] / 1e6:.0f} MB after the epochs)  "
        f"memory {found['peak_memory_bytes'] / 1e6:,.0f} MB  {epochs}"
    )


if __name__ == "__main__":
    main()
