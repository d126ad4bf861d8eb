"""The demo: TPC-H views follow a stream of changes, and are then compared with a recomputation.

It uses only the public API. It prints only what it has just measured or read.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np

import everview as ev
from everview import tpch
from everview.closing import Closing
from everview.database import EngineName
from everview.load.files import load
from everview.readable import readable_bytes
from everview.results.result import count_rows
from everview.tpch.changes import ORDERS_AND_LINES, Changes, apply

VIEWS = {
    "q1": "prices and discounts of shipped lines",
    "q3": "the ten orders worth shipping first",
    "q4": "orders delivered late, by priority",
    "q6": "revenue from small discounts",
}
BATCH = 200
PAUSE = 0.1
Say = Callable[[str], None]


def run(say: Say, scale: float, seconds: float, engines: Sequence[EngineName]) -> None:
    """Run the demo in a temporary directory; `say` gets each line of output."""
    with tempfile.TemporaryDirectory(
        prefix="everview-demo-", ignore_cleanup_errors=True
    ) as directory:
        files = Path(directory)
        with ev.open(files / "shop.ev", create=True, engine=engines[0]) as db:
            _load(db, files, scale, say)
            _create(db, say)
            with _Changing(db) as changing:
                for engine in engines:
                    _follow(db, changing, engine, seconds / len(engines), say)
            _verify(db, say)


def _load(db: ev.Database, files: Path, scale: float, say: Say) -> None:
    tpch.generate(files, scale)
    tpch.create_tables(db)
    start = time.monotonic()
    rows = sum(load(db.table(name), str(files / f"{name}.parquet")) for name in tpch.KEYS)
    seconds = time.monotonic() - start
    size = readable_bytes(sum(table.bytes for table in db.status()))
    say(f"TPC-H at scale factor {scale:g}: {rows:,} rows put in {seconds:.1f} s, {size} with logs")


def _create(db: ev.Database, say: Say) -> None:
    say("starting Spark, whose optimizer plans the views ...")
    times = [time.monotonic()]
    for name in VIEWS:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {tpch.QUERIES[name]}")
        times.append(time.monotonic())
    say(
        f"the first view is created after {times[1] - times[0]:.1f} s, the other "
        f"{len(VIEWS) - 1} after {times[-1] - times[1]:.1f} s more; loading them ..."
    )
    db.maintain()
    say(f"loaded by {db.engine.name.capitalize()} in {time.monotonic() - times[-1]:.1f} s:\n")
    for name, meaning in VIEWS.items():
        state = db.explain(name, json=True)["state"]
        rows = count_rows(len(db.view(name)))
        say(
            f"  {name}  {meaning:<38} {rows:>7}, from {state['rows']:>6,} rows of state in "
            f"{readable_bytes(state['bytes'])}"
        )


def _follow(
    db: ev.Database, changing: _Changing, engine: EngineName, seconds: float, say: Say
) -> None:
    """Let rows change while a maintainer keeps the views current, and look on."""
    changing.once()
    first = db.maintain(engine=engine)
    say(
        f"\norders and lineitem change, the views follow on {engine.capitalize()} (its first epoch "
        f"took {first.seconds:.1f} s):\n"
    )
    say("   time   epoch   changes  behind by    revenue of q6   first order of q3")
    start, before = time.monotonic(), changing.count
    with db.maintainer(every=0.05, engine=engine) as maintainer:
        changing.go()
        while (remaining := start + seconds - time.monotonic()) > 0:
            time.sleep(1.0 if remaining > 1.5 else remaining)
            say(_moment(db, time.monotonic() - start, changing.count - before))
        changing.pause()
        pause = time.monotonic()
    end = time.monotonic()
    say(_moment(db, end - start, changing.count - before))
    report = maintainer.report
    say(
        f"\n{report.changes:,} changes in {report.epochs} epochs of "
        f"{report.seconds / max(report.epochs, 1):.1f} s; the views had the last one "
        f"{end - pause:.1f} s after it was made"
    )


def _moment(db: ev.Database, seconds: float, changes: int) -> str:
    """A line: how far the views are behind, and what two of them say."""
    lag = max(db.view(name).freshness.total_seconds() for name in VIEWS)
    revenue = next(db.view("q6").scan())["revenue"]
    first = next(db.view("q3").scan())
    return (
        f"{seconds:>5.0f} s  {db.view('q6').epoch:>6}  {changes:>8,}  {lag:>7.1f} s  "
        f"{revenue:>15,.2f}   {first['l_orderkey']} for {first['revenue']:,.2f}"
    )


class _Changing(Closing):
    """A thread that changes orders and their lines from `go` to `pause`; counts its changes."""

    def __init__(self, db: ev.Database) -> None:
        self._db = db
        keys = {name: list(tpch.KEYS[name]) for name in ("customer", "partsupp")}
        rows = {name: db.table(name).to_arrow(columns=key) for name, key in keys.items()}
        rows |= {name: db.table(name).to_arrow() for name in ORDERS_AND_LINES}
        self._changes = Changes(rows, np.random.default_rng(7))
        self._going, self._turn, self._is_over = threading.Event(), threading.Lock(), False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.count = 0

    def go(self) -> None:
        self._going.set()

    def once(self) -> None:
        self.count += apply(self._db, self._changes.epoch(BATCH, ORDERS_AND_LINES))

    def pause(self) -> None:
        """From now on nothing changes."""
        self._going.clear()
        with self._turn:
            pass

    def _run(self) -> None:
        while self._going.wait() and not self._is_over:
            with self._turn:
                if self._going.is_set():
                    self.once()
            time.sleep(PAUSE)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def close(self) -> None:
        self.pause()
        self._is_over = True
        self._going.set()
        self._thread.join()


def _verify(db: ev.Database, say: Say) -> None:
    say("\nSpark recomputes the queries, from the tables as of the epoch of the views:\n")
    for name in VIEWS:
        start = time.monotonic()
        say(f"  {db.verify(name)}  ({time.monotonic() - start:.1f} s)")
