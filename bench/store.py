"""How fast the embedded store is, as a share of raw py-lmdb moving the same bytes.

    python bench/store.py [--rows 1000000] [--json bench/results/store.json]

Raw means: the very keys and values that the store keeps, already as Python bytes, in the same
order and transactions, through putmulti, getmulti and cursors; no encoding, no decoding, no
before-images looked up. Each pair is timed side by side, several times, in one process and one
thread of one core; the best of each side makes the share.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import everview as ev

TARGETS = {"put": 0.35, "multi-get": 0.40, "scan": 0.40, "changes": 0.40}
CHUNK = 16_384
REGIONS = 4


def lineitem(rows: int, directory: Path) -> pa.Table:
    """TPC-H lineitem, as many rows as asked, in the order of its key."""
    scale = max(0.01, rows / 6_000_000 * 1.02)
    tool = shutil.which("tpchgen-cli", path=os.path.dirname(sys.executable)) or "tpchgen-cli"
    command = [tool, "parquet", "-s", f"{scale:.4f}", "--tables", "lineitem"]
    subprocess.run([*command, "--output-dir", str(directory)], check=True, capture_output=True)
    table = pq.read_table(directory / "lineitem.parquet").slice(0, rows)
    fields = [pa.field(f.name, _plain(f.type), f.nullable) for f in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def _plain(arrow: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_string_view(arrow) else arrow


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Raw:
    """The store's own LMDB items, and plain py-lmdb to move them."""

    def __init__(self, database: str) -> None:
        self.rows: list[list[tuple[bytes, bytes]]] = []
        self.log: list[list[tuple[bytes, bytes]]] = []
        for region in sorted(Path(database, "tables", "000001").iterdir()):
            with lmdb.open(str(region), max_dbs=3, readonly=True, map_size=16 << 30) as env:
                self.rows.append(_items(env, b"rows"))
                self.log.append(_items(env, b"log"))

    def put(self, directory: str) -> None:
        for region, (rows, log) in enumerate(zip(self.rows, self.log, strict=True)):
            env = _open(os.path.join(directory, str(region)))
            rows_db, log_db = env.open_db(b"rows"), env.open_db(b"log")
            with env.begin(write=True) as txn:
                for start in range(0, len(rows), CHUNK):
                    piece = rows[start : start + CHUNK]
                    txn.cursor(rows_db).putmulti(piece, append=True)
                txn.cursor(log_db).putmulti(log, append=True)
            env.close()


def _open(path: str) -> lmdb.Environment:
    return lmdb.open(path, max_dbs=3, map_size=16 << 30, sync=False, readahead=False)


def _items(env: lmdb.Environment, name: bytes) -> list[tuple[bytes, bytes]]:
    with env.begin() as txn:
        return list(txn.cursor(env.open_db(name, txn, create=False)))


def bench_put(table: pa.Table, work: Path, rounds: int) -> tuple[float, float, Raw]:
    ours, raws, raw = [], [], None
    for turn in range(rounds):
        path = str(work / f"put{turn}.ev")
        with ev.open(path, create=True, durability="never") as db:
            made = db.create_table(
                "lineitem", table.schema, ("l_orderkey", "l_linenumber"), regions=REGIONS
            )
            made.put(table.slice(0, 1))
            ours.append(seconds(lambda made=made: made.put(table)))
        raw = raw or Raw(path)
        target = str(work / f"raw{turn}")
        os.makedirs(target)
        raws.append(seconds(lambda raw=raw, target=target: raw.put(target)))
        shutil.rmtree(target)
        if turn:
            shutil.rmtree(path)
    assert raw is not None
    return min(ours), min(raws), raw


def bench_get(database: str, table: pa.Table, count: int, rounds: int) -> tuple[float, float]:
    picks = np.random.default_rng(7).choice(table.num_rows, count, replace=False)
    keys = table.select(["l_orderkey", "l_linenumber"]).take(pa.array(picks)).combine_chunks()
    with ev.open(database, durability="never") as db:
        lines = db.table("lineitem")
        wanted = _stored_keys(db, keys)
        assert lines.get_many(keys).num_rows == count
        ours = min(seconds(lambda: lines.get_many(keys)) for _ in range(rounds))
    envs = [_open(os.path.join(database, "tables/000001", str(r))) for r in range(REGIONS)]
    dbs = [env.open_db(b"rows") for env in envs]

    def raw() -> None:
        for env, db_, part in zip(envs, dbs, wanted, strict=True):
            with env.begin() as txn:
                txn.cursor(db_).getmulti(part)

    best = min(seconds(raw) for _ in range(rounds))
    for env in envs:
        env.close()
    return ours, best


def _stored_keys(db: ev.Database, keys: pa.Table) -> list[list[bytes]]:
    from everview.codec import KeyCodec
    from everview.codec.keys import regions_of

    schema = db.table("lineitem").schema
    encoded = KeyCodec(schema.key_columns).encode([c.combine_chunks() for c in keys.columns])
    listed = encoded.to_pylist()
    parts: list[list[bytes]] = [[] for _ in range(REGIONS)]
    for key, region in zip(listed, regions_of(encoded, REGIONS).tolist(), strict=True):
        parts[region].append(key)
    return [sorted(part) for part in parts]


def bench_scan(database: str, rounds: int) -> tuple[float, float]:
    with ev.open(database, durability="never") as db:
        lines = db.table("lineitem")
        ours = min(seconds(lambda: _drain(lines.batches(ordered=False))) for _ in range(rounds))
    return ours, _raw_read(database, b"rows", rounds)


def bench_changes(database: str, raw: Raw, work: Path, rounds: int) -> tuple[float, float, float]:
    """Against the log's own chunks, and against a log of one item for each change."""
    with ev.open(database, durability="never") as db:
        lines = db.table("lineitem")
        ours = min(seconds(lambda: _drain(lines.changes())) for _ in range(rounds))
    single = str(work / "single")
    for region, rows in enumerate(raw.rows):
        path = os.path.join(single, "tables/000001", str(region))
        os.makedirs(path)
        env = _open(path)
        log = env.open_db(b"log")
        with env.begin(write=True) as txn:
            items = ((number.to_bytes(8, "big"), row) for number, (_, row) in enumerate(rows, 1))
            txn.cursor(log).putmulti(items, append=True)
        env.close()
    per_change = _raw_read(single, b"log", rounds)
    return ours, per_change, _raw_read(database, b"log", rounds)


def _raw_read(database: str, name: bytes, rounds: int) -> float:
    paths = sorted(Path(database, "tables", "000001").iterdir())
    envs = [_open(str(path)) for path in paths]
    dbs = [env.open_db(name) for env in envs]

    def read() -> None:
        for env, db in zip(envs, dbs, strict=True):
            with env.begin() as txn:
                for _ in txn.cursor(db):
                    pass

    best = min(seconds(read) for _ in range(rounds))
    for env in envs:
        env.close()
    return best


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
    return {f"p{q}_ms": float(np.percentile(times, q)) * 1e3 for q in (50, 99)}


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
        put, raw_put, raw = bench_put(table, work, rounds)
        database = str(work / "put0.ev")
        size = sum(f.stat().st_blocks * 512 for f in Path(database).rglob("data.mdb"))
        row_bytes = sum(len(v) for part in raw.rows for _, v in part) / table.num_rows
        get, raw_get = bench_get(database, table, min(100_000, rows // 2), rounds)
        scan, raw_scan = bench_scan(database, rounds)
        changes, raw_changes, raw_chunks = bench_changes(database, raw, work, rounds)
        memory = subprocess.run(
            [sys.executable, __file__, "--scan-memory", database],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        latency = bench_single_get(database, table, 5_000)
        gets = min(100_000, rows // 2)
        timed = {
            "put": (rows, put, raw_put),
            "multi-get": (gets, get, raw_get),
            "scan": (rows, scan, raw_scan),
            "changes": (rows, changes, raw_changes),
        }
        return {
            "rows": rows,
            "operations": {
                name: {
                    "rows_per_second": round(count / ours),
                    "raw_rows_per_second": round(count / base),
                    "share_of_raw": round(base / ours, 3),
                    "target": TARGETS[name],
                }
                for name, (count, ours, base) in timed.items()
            },
            "changes_share_of_raw_chunks": round(raw_chunks / changes, 3),
            "get_while_writing": {k: round(v, 3) for k, v in latency.items()},
            "scan_memory_mib": round(float(memory.stdout), 1),
            "bytes_per_row": {
                "encoded": round(row_bytes, 1),
                "on_disk_rows_and_log": round(size / rows, 1),
                "arrow": round(table.nbytes / rows, 1),
            },
            "max_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
    finally:
        shutil.rmtree(work, ignore_errors=True)


def show(result: dict[str, Any]) -> None:
    print(f"{'':<10} {'rows/s':>12} {'raw rows/s':>12} {'share':>7} {'target':>7}")
    for name, row in result["operations"].items():
        print(
            f"{name:<10} {row['rows_per_second']:>12,} {row['raw_rows_per_second']:>12,} "
            f"{row['share_of_raw']:>7.0%} {row['target']:>7.0%}"
        )
    latency, size = result["get_while_writing"], result["bytes_per_row"]
    print(f"get while another process writes: p50 {latency['p50_ms']:.3f} ms, "
          f"p99 {latency['p99_ms']:.3f} ms")  # fmt: skip
    print(f"bytes per row: {size['encoded']} encoded, {size['on_disk_rows_and_log']} on disk with "
          f"its change, {size['arrow']} in Arrow")  # fmt: skip
    print(f"memory a full scan needs beyond its first batch: {result['scan_memory_mib']} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
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
