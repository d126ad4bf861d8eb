"""How fast the embedded store is, as a share of raw py-lmdb moving the same bytes.

    python bench/store.py [--rows 1000000] [--json bench/results/store.json]

Raw means: the very keys and row values that the store keeps, already as Python bytes, in order,
through putmulti, getmulti and cursors, with one log item for each change; no encoding, no
decoding, no before-images looked up. The store packs changes into larger items; the shares
against raw py-lmdb moving those very items are printed too. Both sides take turns in one process
on one core; the best of each makes the share.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import everview as ev
from everview.codec import KeyCodec
from everview.codec.keys import regions_of
from everview.tpch.tables import generate

TARGETS = {"put": 0.35, "multi-get": 0.40, "scan": 0.40, "changes": 0.40}
REGIONS = 4
Items = list[tuple[bytes, bytes]]


def lineitem(rows: int, directory: Path) -> pa.Table:
    """TPC-H lineitem, as many rows as asked, in the order of its key."""
    scale = max(0.01, rows / 6_000_000 * 1.02)
    generate(directory, round(scale, 4), ("lineitem",))
    table = pq.read_table(directory / "lineitem.parquet").slice(0, rows)
    fields = [pa.field(f.name, _plain(f.type), f.nullable) for f in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def _plain(arrow: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_string_view(arrow) else arrow


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(rounds: int, *works: Callable[[], Any]) -> list[float]:
    """The best time of each, taken in turns so that a busy machine is unfair to none."""
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


class Raw:
    """The store's own LMDB items, and plain py-lmdb to move them.

    `log` has one item for each change; `packed` is the log as the store keeps it.
    """

    def __init__(self, database: str, work: Path) -> None:
        self.rows: list[Items] = []
        self.log: list[Items] = []
        self.packed: list[Items] = []
        for region in sorted(Path(database, "tables", "000001").iterdir()):
            with lmdb.open(str(region), max_dbs=3, readonly=True, map_size=16 << 30) as env:
                rows = _items(env, b"rows")
                self.rows.append(rows)
                self.packed.append(_items(env, b"log"))
                self.log.append([(n.to_bytes(8, "big"), row) for n, (_, row) in enumerate(rows)])
        self._work = work
        self.put("separate", self.log)
        self.put("packed", self.packed)

    def put(self, name: str, log: list[Items]) -> None:
        shutil.rmtree(self._work / name, ignore_errors=True)
        for region, (rows, changes) in enumerate(zip(self.rows, log, strict=True)):
            with closing(self.open(name, region)) as env:
                rows_db, log_db = env.open_db(b"rows"), env.open_db(b"log")
                with env.begin(write=True) as txn:
                    txn.cursor(rows_db).putmulti(rows, append=True)
                    txn.cursor(log_db).putmulti(changes, append=True)

    def open(self, name: str, region: int) -> lmdb.Environment:
        path = self._work / name / str(region)
        path.mkdir(parents=True, exist_ok=True)
        return lmdb.open(str(path), max_dbs=3, map_size=16 << 30, sync=False, readahead=False)

    def reader(self, name: str, db: bytes) -> Callable[[], None]:
        """What reads every item of a database once; its files stay open."""
        envs = [self.open(name, region) for region in range(REGIONS)]
        dbs = [env.open_db(db) for env in envs]

        def read() -> None:
            for env, opened in zip(envs, dbs, strict=True):
                with env.begin() as txn:
                    for _ in txn.cursor(opened):
                        pass

        return read

    def getter(self, keys: list[list[bytes]]) -> Callable[[], None]:
        envs = [self.open("gets", region) for region in range(REGIONS)]
        dbs = [env.open_db(b"rows") for env in envs]

        def get() -> None:
            for env, opened, part in zip(envs, dbs, keys, strict=True):
                with env.begin() as txn:
                    txn.cursor(opened).getmulti(part)

        return get


def _items(env: lmdb.Environment, name: bytes) -> Items:
    with env.begin() as txn:
        return list(txn.cursor(env.open_db(name, txn, create=False)))


def bench_put(table: pa.Table, work: Path, rounds: int) -> tuple[list[float], Raw]:
    """Times of our put, of raw with separate log items, and of raw with packed ones."""
    path = work / "put.ev"

    def create() -> tuple[ev.Table, ev.Database]:
        shutil.rmtree(path, ignore_errors=True)
        db = ev.open(path, create=True, durability="never")
        keys = ("l_orderkey", "l_linenumber")
        return db.create_table("lineitem", table.schema, keys, regions=REGIONS), db

    times, raw = [], None
    for _ in range(rounds):
        made, db = create()
        ours = seconds(lambda made=made: made.put(table))
        db.close()
        raw = raw or Raw(str(path), work)
        separate = seconds(lambda raw=raw: raw.put("separate", raw.log))
        packed = seconds(lambda raw=raw: raw.put("packed", raw.packed))
        times.append((ours, separate, packed))
    assert raw is not None
    return [min(column) for column in zip(*times, strict=True)], raw


def bench_reads(lines: ev.Table, table: pa.Table, raw: Raw, rounds: int) -> dict[str, list[float]]:
    """Times of our reads and of raw ones, by operation."""
    picks = np.random.default_rng(7).choice(table.num_rows, _gets(table), replace=False)
    keys = table.select(["l_orderkey", "l_linenumber"]).take(pa.array(picks)).combine_chunks()
    assert lines.get_many(keys).num_rows == len(picks)
    for copy in ("gets", "rows"):
        shutil.copytree(raw._work / "packed", raw._work / copy)
    get = raw.getter(_stored_keys(lines, keys))
    changes, packed, scan = (
        raw.reader(name, db)
        for name, db in (("separate", b"log"), ("packed", b"log"), ("rows", b"rows"))
    )
    return {
        "multi-get": in_turns(rounds, lambda: lines.get_many(keys), get),
        "scan": in_turns(rounds, lambda: _drain(lines.batches(ordered=False)), scan),
        "changes": in_turns(rounds, lambda: _drain(lines.changes()), changes, packed),
    }


def _gets(table: pa.Table) -> int:
    return min(100_000, table.num_rows // 2)


def _stored_keys(lines: ev.Table, keys: pa.Table) -> list[list[bytes]]:
    codec = KeyCodec(lines.schema.key_columns)
    encoded = codec.encode([column.combine_chunks() for column in keys.columns])
    parts: list[list[bytes]] = [[] for _ in range(REGIONS)]
    for key, region in zip(encoded.to_pylist(), regions_of(encoded, REGIONS), strict=True):
        parts[region].append(key)
    return [sorted(part) for part in parts]


def _drain(batches: Iterator[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def bench_single_get(database: str, table: pa.Table, count: int) -> dict[str, float]:
    """Latency of `get` while another process puts."""
    writer = subprocess.Popen([sys.executable, __file__, "--writer", database])
    try:
        time.sleep(2)
        with ev.open(database, durability="never") as db:
            lines = db.table("lineitem")
            orders = table.column("l_orderkey").to_pylist()
            numbers = table.column("l_linenumber").to_pylist()
            for _ in range(100):
                lines.get((orders[0], numbers[0]))
            times = []
            for _ in range(count):
                at = random.randrange(len(orders))
                key = orders[at], numbers[at]
                times.append(seconds(lambda key=key: lines.get(key)))
        assert writer.poll() is None, "the writer ended before the reads did"
    finally:
        writer.terminate()
        writer.wait()
    return {f"p{q}_ms": round(float(np.percentile(times, q)) * 1e3, 3) for q in (50, 99)}


def write_forever(database: str) -> None:
    os.sched_setaffinity(0, {os.cpu_count() - 1})
    with ev.open(database, durability="never") as db:
        lines = db.table("lineitem")
        sample = next(lines.batches(batch_rows=4096))
        end = time.monotonic() + 120
        while time.monotonic() < end:
            lines.put(sample)


def scan_memory(database: str) -> None:
    """Print how many MiB a full scan adds to the peak memory of this process."""
    with ev.open(database, durability="never") as db:
        lines = db.table("lineitem")
        next(lines.batches(ordered=False))
        before = _private_mib()
        peak = 0.0
        for number, _ in enumerate(lines.batches(ordered=False)):
            if number % 8 == 0:
                peak = max(peak, _private_mib())
    print(peak - before)


def _private_mib() -> float:
    """Memory of our own, without the pages of the mapped files."""
    with open("/proc/self/smaps_rollup") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("Anonymous",)) / 1024


def run(rows: int, rounds: int) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp(prefix="everview-bench-"))
    try:
        table = lineitem(rows, work)
        put, raw = bench_put(table, work, rounds)
        database = str(work / "put.ev")
        with ev.open(database, durability="never") as db:
            lines = db.table("lineitem")
            timed = {"put": put} | bench_reads(lines, table, raw, rounds)
            size = sum(region.bytes for region in lines.status())
        encoded = sum(len(row) for part in raw.rows for _, row in part)
        counts = {"multi-get": _gets(table)}
        return {
            "rows": rows,
            "operations": {
                name: _shares(counts.get(name, rows), TARGETS[name], *times)
                for name, times in timed.items()
            },
            "get_while_writing": bench_single_get(database, table, 5_000),
            "scan_memory_mib": _scan_memory_of(database),
            "bytes_per_row": {
                "encoded": round(encoded / rows, 1),
                "on_disk_rows_and_log": round(size / rows, 1),
                "arrow": round(table.nbytes / rows, 1),
            },
        }
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _shares(
    count: int, target: float, ours: float, raw: float, packed: float | None = None
) -> dict[str, Any]:
    found = {
        "rows_per_second": round(count / ours),
        "raw_rows_per_second": round(count / raw),
        "share_of_raw": round(raw / ours, 3),
        "target": target,
    }
    return found if packed is None else found | {"share_of_raw_packed": round(packed / ours, 3)}


def _scan_memory_of(database: str) -> float:
    command = [sys.executable, __file__, "--scan-memory", database]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return round(float(done.stdout), 1)


def show(result: dict[str, Any]) -> None:
    print(f"{'':<10} {'rows/s':>12} {'raw rows/s':>12} {'share':>7} {'target':>7} {'packed':>7}")
    for name, row in result["operations"].items():
        packed = row.get("share_of_raw_packed")
        print(
            f"{name:<10} {row['rows_per_second']:>12,} {row['raw_rows_per_second']:>12,} "
            f"{row['share_of_raw']:>7.0%} {row['target']:>7.0%} "
            f"{'' if packed is None else format(packed, '.0%'):>7}"
        )
    latency, size = result["get_while_writing"], result["bytes_per_row"]
    print(
        f"get while another process writes: p50 {latency['p50_ms']:.3f} ms, "
        f"p99 {latency['p99_ms']:.3f} ms\n"
        f"bytes per row: {size['encoded']} encoded, {size['on_disk_rows_and_log']} on disk with "
        f"its change, {size['arrow']} in Arrow\n"
        f"memory a full scan needs beyond its first batch: {result['scan_memory_mib']} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--writer", help=argparse.SUPPRESS)
    parser.add_argument("--scan-memory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.writer:
        return write_forever(args.writer)
    if args.scan_memory:
        return scan_memory(args.scan_memory)
    os.sched_setaffinity(0, {0})
    pa.set_cpu_count(1)
    result = run(args.rows, args.rounds)
    show(result)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
