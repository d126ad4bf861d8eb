"""How near EXPLAIN's estimates come to what is measured, and what the order of joins is worth.

    python bench/cost.py [--scale 0.1] [--engine sail] [--queries q1,q3,q5,...] [--json FILE]
                         [--directory DIR] [--orders]

The engine is calibrated first. Each view is alone in a copy of one database. Shown is what was
expected beside what was measured, and their ratio: of the state when it is loaded, of the load, and
of an epoch of 1,000 changes of orders and lineitem (the median of several, after some that are not
measured). `--orders` has each view whose joins the model orders otherwise also in Catalyst's order.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import everview as ev
from everview import tpch
from everview.calibration import calibrate
from everview.load.files import load
from everview.plan.rules import order_joins
from everview.tpch import changes

SIZE, WARM_UP, EPOCHS = 1_000, 3, 7
TITLES = ("state rows", "bytes", "load s", "epoch s")
Numbers = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--engine", choices=["spark", "sail"], default="sail")
    parser.add_argument("--queries", default="q1,q3,q5,q6,q7,q9,q10,q12,q18")
    parser.add_argument("--orders", action="store_true", help="also in Catalyst's order")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--directory", help="keep the tables here, and use them in the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as scratch:
        base = _base(Path(options.directory or scratch), options.scale)
        with ev.open(base, engine=options.engine) as db:
            constants = calibrate(db, options.engine, lambda step: None)
        found = {}
        print(f"{'':14}" + "".join(f"{title:>32}" for title in TITLES))
        for query in options.queries.split(","):
            for name, better in _orders(base, options, query):
                found[name] = _measured(base, Path(scratch), options.engine, query, better)
                print(_line(name, found[name]), flush=True)
    results = {"scale": options.scale, "constants": constants.to_json(), "views": found}
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


def _base(directory: Path, scale: float) -> Path:
    """A database with the eight tables, and no log."""
    path, files = directory / f"cost-{scale:g}.ev", directory / f"cost-{scale:g}"
    if path.exists():
        return path
    files.mkdir(exist_ok=True)
    tpch.generate(files, scale)
    with ev.open(path, create=True) as db:
        tpch.create_tables(db)
        for name in tpch.KEYS:
            load(db.table(name), str(files / f"{name}.parquet"))
            db.store.trim(name)
    return path


def _orders(base: Path, options: argparse.Namespace, query: str) -> list[tuple[str, float]]:
    """The query by name; if asked for and another, also in Catalyst's order."""
    rule: Any = sys.modules[order_joins.__module__]
    plain = [(query, rule.BETTER)]
    if not options.orders:
        return plain
    with ev.open(base, engine=options.engine) as db:
        plans = [_explained(db, query, better)["plan"] for better in (rule.BETTER, 1e9)]
    return plain if plans[0] == plans[1] else [*plain, (f"{query} catalyst", 1e9)]


def _explained(db: ev.Database, query: str, better: float, name: str = "v") -> dict[str, Any]:
    with _better(better):
        return db.explain(f"CREATE MATERIALIZED VIEW {name} AS {tpch.QUERIES[query]}", json=True)


def _per_change(document: dict[str, Any]) -> float:
    """Seconds of all operators for a change, of which the tables have their shares."""
    tables = document["estimate"]["per_1000_changes"]

    def walk(node: dict[str, Any]) -> float:
        mine = node["estimate"]["per_1000_changes"] if node["estimate"] else {}
        own = sum(tables[table]["share"] * one["seconds"] for table, one in mine.items())
        return own + sum(map(walk, node["inputs"]))

    return walk(document["plan"]) / 1_000


class _better:
    """Inside the block, orders must be so many times cheaper."""

    def __init__(self, better: float) -> None:
        self._rule: Any = sys.modules[order_joins.__module__]
        self._given = better

    def __enter__(self) -> None:
        self._before, self._rule.BETTER = self._rule.BETTER, self._given

    def __exit__(self, *_: object) -> None:
        self._rule.BETTER = self._before


def _measured(
    base: Path, scratch: Path, engine: str, query: str, better: float
) -> dict[str, Numbers]:
    path = shutil.copytree(base, scratch / f"{query}-{better:g}.ev")
    os.sync()  # or the copy would be written out while epochs are measured
    with ev.open(path, engine=engine) as db:  # type: ignore[arg-type]
        rows = {name: db.table(name).to_arrow() for name in tpch.KEYS}
        expected = _explained(db, query, better)["estimate"]
        with _better(better):
            db.sql(f"CREATE MATERIALIZED VIEW v AS {tpch.QUERIES[query]}")
        begun = time.perf_counter()
        assert not db.maintain().failed
        loaded = time.perf_counter() - begun
        state = db.explain("v", json=True)["state"]
        source = changes.Changes(rows, np.random.default_rng(1))
        epochs = []
        for _ in range(WARM_UP + EPOCHS):
            changes.apply(db, source.epoch(SIZE, changes.ORDERS_AND_LINES))
            report = db.maintain()
            epochs.append((report.seconds, report.changes))
        mixed = _per_change(_explained(db, query, better, "again"))
    shutil.rmtree(path)
    seconds, counts = (statistics.median(one) for one in zip(*epochs[WARM_UP:], strict=True))
    guesses = (
        *(expected["state"]["rows"], expected["state"]["bytes"], expected["load_seconds"]),
        expected["epoch_seconds"] + counts * mixed,
    )
    real = (state["rows"], state["bytes"], loaded, seconds)
    pairs = zip(TITLES, guesses, real, strict=True)
    return {what: {"expected": one, "measured": other} for what, one, other in pairs}


def _line(name: str, found: dict[str, Numbers]) -> str:
    pairs = [(one["expected"], one["measured"]) for one in found.values()]
    cells = [f"{guess:,.4g} / {real:,.4g} = {guess / real:.2f}" for guess, real in pairs]
    return f"{name:14}" + "".join(f"{cell:>32}" for cell in cells)


if __name__ == "__main__":
    main()
