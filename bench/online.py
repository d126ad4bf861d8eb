"""What a running database costs: small epochs, many views, followers and point reads.

    python bench/online.py [--scale 0.1] [--engine sail] [--parts epochs,many,together,...]
                           [--json FILE] [--directory DIR]

`epochs`: milliseconds of an epoch of 100 to 100,000 changes of orders and lineitem, one view in the
database, beside the same on the engine alone, in turns; the writes come before it and are named
apart. `many`: 50 views that differ in a constant, beside one of them. `together`: all TPC-H views.
`load`: the epochs of four views while q9 is loaded, beside those before, and the load beside one
that nothing disturbs. `follow`: an epoch of 10,000 changes with a follower of the view, beside one
without, in turns. `get`: a point read of a view, beside one of a table.
`zipf`: rows that come to tasks if keys follow Zipf's law, for whole shards and for slots.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import everview as ev
from everview import tpch
from everview.catalog import VIEWS
from everview.maintain import epochs
from everview.programs import direct
from everview.tpch import changes
from tpch import NEEDED, base_database

SIZES = {100: 15, 1_000: 15, 10_000: 9, 100_000: 5}  # changes: epochs that are measured
WARM_UP = 3
QUERIES = ("q1", "q3", "q6")
MANY = 50
LIVE, LOADED, STREAM_SECONDS = ("q1", "q3", "q4", "q6"), "q9", 10
TURNS = 15
READS = 2_000
USERS, ZIPF, ZIPF_CHANGES, ZIPF_EPOCHS, ZIPF_SEEDS = 100_000, 1.2, 200_000, 4, 5
OF_MANY = (
    "SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem "
    "WHERE l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < {}"
)


class Run:
    """A copy of the tables with a stream of changes."""

    def __init__(self, db: ev.Database) -> None:
        self.db = db
        known = {name: db.table(name).to_arrow(columns=columns) for name, columns in NEEDED.items()}
        self._stream = changes.Changes(known, np.random.default_rng(7))

    def write(self, size: int) -> float:
        """Seconds that so many changes take to write."""
        batch = self._stream.epoch(size, dict(changes.ORDERS_AND_LINES))
        return seconds(lambda: changes.apply(self.db, batch))

    def epoch(self) -> float:
        """Seconds of an epoch with what was written."""
        return seconds(lambda: self.db.maintain())

    def epoch_on_the_engine(self) -> float:
        """Seconds of an epoch of which the engine does all."""
        usual, direct.DIRECT_CHANGES = direct.DIRECT_CHANGES, 0
        try:
            return self.epoch()
        finally:
            direct.DIRECT_CHANGES = usual


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def measure_epochs(open_: Any) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for query in QUERIES:
        with open_() as run:
            run.db.sql(f"CREATE MATERIALIZED VIEW {query} AS {tpch.QUERIES[query]}")
            run.db.maintain()
            for size, repeats in SIZES.items():
                rounds = [
                    (run.write(size), run.epoch(), run.write(size), run.epoch_on_the_engine())
                    for _ in range(WARM_UP + repeats)
                ]
                writes, epochs, _, on_the_engine = zip(*rounds[WARM_UP:], strict=True)
                results.setdefault(query, {})[size] = {
                    "epoch_ms": 1e3 * statistics.median(epochs),
                    "engine_ms": 1e3 * statistics.median(on_the_engine),
                    "write_ms": 1e3 * statistics.median(writes),
                }
        cells = [
            f"{s:,}: {r['epoch_ms']:.0f} ms ({r['engine_ms'] / r['epoch_ms']:.1f}x faster)"
            for s, r in results[query].items()
        ]
        print(f"epochs  {query:3} {'  '.join(cells)}", flush=True)
    return results


def measure_many(open_: Any) -> dict[str, Any]:
    results = {}
    for number in (1, MANY):
        with open_() as run:
            queries = [OF_MANY.format(10 + place / 4) for place in range(number)]
            create = seconds(
                lambda queries=queries, run=run: [  # type: ignore[misc]
                    run.db.sql(f"CREATE MATERIALIZED VIEW v{place} AS {query}")
                    for place, query in enumerate(queries)
                ]
            )
            load = run.epoch()
            pairs = [(run.write(1_000), run.epoch()) for _ in range(WARM_UP + 9)]
            results[number] = {
                "create_seconds_each": create / number,
                "load_seconds_each": load / number,
                "epoch_ms": 1e3 * statistics.median(epoch for _, epoch in pairs[WARM_UP:]),
            }
    one, many = results[1], results[MANY]
    many["epoch_of_one"] = many["epoch_ms"] / one["epoch_ms"]
    print(
        f"many    {MANY} views: {many['epoch_ms']:.0f} ms an epoch of 1,000 changes "
        f"({many['epoch_of_one']:.1f}x one view), create {many['create_seconds_each']:.2f} s and "
        f"load {many['load_seconds_each']:.2f} s each",
        flush=True,
    )
    return {str(number): result for number, result in results.items()}


def measure_together(open_: Any) -> dict[str, Any]:
    with open_() as run:
        for query, sql in tpch.QUERIES.items():
            run.db.sql(f"CREATE MATERIALIZED VIEW {query} AS {sql}")
        run.db.maintain()
        pairs = []
        for _ in range(WARM_UP + 9):
            run.write(1_000)
            epoch = run.epoch()
            run.write(1_000)
            pairs.append((epoch, run.epoch_on_the_engine()))
    ours, engines = (1e3 * statistics.median(part) for part in zip(*pairs[WARM_UP:], strict=True))
    print(
        f"all     {len(tpch.QUERIES)} TPC-H views: {ours:.0f} ms an epoch of 1,000 changes, "
        f"{engines / ours:.1f}x faster than on the engine alone",
        flush=True,
    )
    return {"epoch_ms": ours, "engine_ms": engines}


def measure_load(open_: Any) -> dict[str, Any]:
    with open_() as run:
        run.db.sql(f"CREATE MATERIALIZED VIEW {LOADED} AS {tpch.QUERIES[LOADED]}")
        alone = run.epoch()
    with open_() as run:
        for query in LIVE:
            run.db.sql(f"CREATE MATERIALIZED VIEW {query} AS {tpch.QUERIES[query]}")
        run.db.maintain()
        watch = _Lags()
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.1):
                run.write(1_000)

        writer = threading.Thread(target=write)
        writer.start()
        maintain = functools.partial(run.db.maintain, watch=watch)
        until = time.perf_counter() + STREAM_SECONDS
        while time.perf_counter() < until:
            maintain()
        before, watch.epochs = watch.epochs, []
        run.db.sql(f"CREATE MATERIALIZED VIEW {LOADED} AS {tpch.QUERIES[LOADED]}")
        beside = seconds(maintain)
        stop.set()
        writer.join()
        run.db.maintain()
        assert run.db.verify(LOADED).equal
    parts = (watch.epochs, before)
    p50, p50_before = (statistics.median(e.seconds for e in part) for part in parts)
    lag, lag_before = (statistics.median(e.lag for e in part) for part in parts)
    print(
        f"load    of {LOADED} beside epochs takes {beside:.1f} s, {beside / alone:.2f}x of alone; "
        f"{len(watch.epochs)} epochs of {len(LIVE)} views meanwhile, p50 {1e3 * p50:.0f} ms, "
        f"{p50 / p50_before:.2f}x of before; lag p50 {lag:.2f} s, before {lag_before:.2f} s",
        flush=True,
    )
    return {
        "alone_seconds": alone,
        "beside_seconds": beside,
        "beside_of_alone": beside / alone,
        "epochs": len(watch.epochs),
        "epoch_p50_ms": 1e3 * p50,
        "epoch_p50_of_before": p50 / p50_before,
        "lag_p50_seconds": lag,
        "lag_p50_seconds_before": lag_before,
    }


class _Lags(ev.Watcher):
    def __init__(self) -> None:
        self.epochs: list[ev.Epoch] = []

    def committed(self, epoch: ev.Epoch) -> None:
        self.epochs.append(epoch)


def measure_follow(open_: Any) -> dict[str, Any]:
    """In turns, so that both have the same state and the same noise."""
    with open_() as run:
        run.db.sql(
            "CREATE MATERIALIZED VIEW parts AS SELECT l_partkey, sum(l_quantity) AS quantity "
            "FROM lineitem GROUP BY l_partkey"
        )
        run.db.maintain()
        view, times = run.db.view("parts"), dict[bool, list[float]]({False: [], True: []})
        rows = 0
        for turn in range(2 * (WARM_UP + TURNS)):
            is_followed = bool(turn % 2)
            if is_followed:
                start = view.register("bench")
            run.write(10_000)
            times[is_followed].append(run.epoch())
            if is_followed:
                rows += sum(batch.num_rows for batch in view.changes(start))
                view.unregister("bench")
    assert rows
    alone, followed = (statistics.median(times[which][WARM_UP:]) for which in (False, True))
    ratio = followed / alone
    print(f"follow  an epoch of 10,000 changes takes {ratio:.3f}x with a follower", flush=True)
    return {"alone_ms": 1e3 * alone, "followed_ms": 1e3 * followed, "ratio": ratio}


def measure_get(open_: Any) -> dict[str, Any]:
    with open_() as run:
        run.db.sql(
            "CREATE MATERIALIZED VIEW spend AS SELECT o_custkey, sum(o_totalprice) AS total "
            "FROM orders GROUP BY o_custkey"
        )
        run.db.maintain()
        view, table = run.db.view("spend"), run.db.table("customer")
        keys = np.random.default_rng(5).choice(view.to_arrow()["o_custkey"].to_numpy(), READS)
        of_view = [seconds(lambda key=int(key): view.get(key)) for key in keys]  # type: ignore[misc]
        of_table = [seconds(lambda key=int(key): table.get(key)) for key in keys]  # type: ignore[misc]
    p50, p99 = (1e3 * float(np.percentile(of_view, q)) for q in (50, 99))
    of_table_p50 = 1e3 * statistics.median(of_table)
    print(
        f"get     of a view p50 {p50:.3f} ms, p99 {p99:.3f} ms; of a table p50 "
        f"{of_table_p50:.3f} ms",
        flush=True,
    )
    return {"view_p50_ms": p50, "view_p99_ms": p99, "table_p50_ms": of_table_p50}


def measure_zipf(open_: Any) -> dict[str, Any]:
    """Whole shards first, then slots that are dealt out; each time the same changes. Which keys are
    the frequent ones is drawn several times."""
    results: dict[str, Any] = {}
    for tasks in sorted({os.cpu_count() or 1, 4}):
        for kind, deals in (("whole shards", False), ("slots dealt out", True)):
            runs = [_zipf(open_, tasks, deals, seed) for seed in range(ZIPF_SEEDS)]
            busiest, times = ([run[i] for run in runs] for i in (0, 1))
            print(
                f"zipf    {tasks} tasks, {kind}: the busiest has {min(busiest):.2f}x to "
                f"{max(busiest):.2f}x the rows of the median task; an epoch of {ZIPF_CHANGES:,} "
                f"changes takes {statistics.median(times):.2f} s",
                flush=True,
            )
            results[f"{tasks} tasks, {kind}"] = {"busiest": busiest, "epoch_seconds": times}
    return results


def _zipf(open_: Any, tasks: int, deals: bool, seed: int) -> tuple[float, float]:
    """The rows of the busiest task against the median one's in the last epoch, and its seconds."""
    chance = np.random.default_rng(seed)
    users = chance.permutation(USERS)
    with open_() as run, mock.patch("os.cpu_count", return_value=tasks), ExitStack() as patches:
        if not deals:
            patches.enter_context(mock.patch.object(epochs, "deal_out", return_value=()))
        db = run.db
        db.sql("CREATE TABLE visits (id BIGINT PRIMARY KEY, u BIGINT) WITH (regions = 4)")
        db.sql(
            "CREATE MATERIALIZED VIEW visitors AS SELECT u, max(id) AS last FROM visits GROUP BY u"
        )
        db.maintain()
        times = []
        for epoch in range(ZIPF_EPOCHS):
            visitors = users[np.minimum(chance.zipf(ZIPF, ZIPF_CHANGES), USERS) - 1]
            ids = np.arange(ZIPF_CHANGES) + epoch * ZIPF_CHANGES
            db.table("visits").put(pa.table({"id": ids, "u": visitors}))
            times.append(run.epoch())
        view = db.store.catalog.get(VIEWS["visitors"])
        assert view is not None
        (state,) = view.operators.values()
        shards = [db.store.states.shard(state, number).work() for number in view.shards]
        rows = [shard.epochs[-1].rows_in for shard in shards]
        if parts := [part for shard in shards for part in shard.parts]:
            rows = [0] * tasks
            for first, rows_in, _ in parts:
                rows[db.store.catalog.epoch.tasks[first]] += rows_in
    return max(rows) / statistics.median(rows), times[-1]


PARTS = {
    "zipf": measure_zipf,
    "epochs": measure_epochs,
    "many": measure_many,
    "together": measure_together,
    "load": measure_load,
    "follow": measure_follow,
    "get": measure_get,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--engine", choices=["spark", "sail"], default="sail")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--directory", help="keep the tables here, and use them in the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as directory:
        base = base_database(Path(options.directory or directory), options.scale)

        @contextmanager
        def open_() -> Iterator[Run]:
            path = shutil.copytree(base, Path(directory) / "run.ev")
            with ev.open(path, engine=options.engine) as db:
                yield Run(db)
            shutil.rmtree(path)

        results = {part: PARTS[part](open_) for part in options.parts.split(",")}
    if options.json:
        document = {"scale": options.scale, "engine": options.engine, **results}
        Path(options.json).write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
