"""What consistency costs: outboxes, split rows and checksums, syncing, reads beside epochs, and
changes that move rows between groups.

    python bench/consistency.py [--rows 1000000] [--changes 10000] [--repeats 9] [--engine sail]
                                [--json FILE]

Everything is a ratio of epochs that are run in turns. `protocol` takes the mechanisms out of this
process, so it is measured with Sail, which works inside it; there the engine takes the least and
the mechanisms the greatest share. `durability` compares with `never`. `reads` are point reads of a
view by another process, with a pause of a millisecond after each. `moves` are epochs whose updates
move a share of rows between groups, over the same updates without moves, beside figure 4.5.6 of
the dissertation.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import everview as ev
from everview.operators import sink
from everview.stores.embedded import sealed, state

GROUPS = {5: "1.3x at 10 to 60%", 1_000: "-", 1_000_000: "3.4 to 5.3x at 10%, 7.3 to 13x at 60%"}
SHARES = (10, 30, 60)
VIEW = """
    CREATE MATERIALIZED VIEW spent AS
    SELECT c.region, o.customer, count(*) AS orders, sum(o.amount) AS amount
    FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.region, o.customer
"""
READS = 10_000
PAUSE = 0.001  # seconds between reads: without, they would compete with epochs for two cores
WARM_UP = 3


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as name:
        directory = Path(name)
        found = {
            "protocol": _protocol(directory, options),
            "durability": _durability(directory, options),
            "reads": _reads(directory, options),
            "moves": _moves(directory, options),
        }
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--engine", default="sail", help="of all but `protocol`")
    parser.add_argument("--json", help="write the results here")
    parser.add_argument("--directory", help="where databases are made")
    return parser.parse_args()


def _protocol(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Epochs with all mechanisms over those without one of them, or any."""
    without: dict[str, Callable[[], Any]] = {
        "outbox": _without_outbox,
        "split rows": _without_split_rows,
        "checksums": _without_checksums,
    }
    ways: dict[str, Callable[[], Any]] = {"all": ExitStack, **without, "any": _without(without)}
    with ExitStack() as stack:
        shops = {
            way: stack.enter_context(_shop(directory / f"without {way}.ev", options, "sail", off))
            for way, off in ways.items()
        }
        times = _in_turns(shops, ways, options)
    found = {f"without {way}": _dearer(times["all"], times[way]) for way in [*without, "any"]}
    took = float(np.median(times["all"]))
    print(f"an epoch of {options.changes:,} changes takes {took * 1000:.0f} ms; it is dearer by")
    for way, share in found.items():
        print(f"  {share:6.1%} than {way}")
    return {"seconds": took, **found}


def _durability(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    levels = ("never", "interval", "always")
    with ExitStack() as stack:
        shops = {
            level: stack.enter_context(
                _shop(directory / f"{level}.ev", options, options.engine, ExitStack, level)
            )
            for level in levels
        }
        times = _in_turns(shops, dict.fromkeys(levels, ExitStack), options)
    found = {level: _dearer(times[level], times["never"]) for level in levels[1:]}
    for level, share in found.items():
        print(f"durability {level}: {share:+.1%} over never")
    return found


def _reads(directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Point reads by another process, with and without epochs beside them."""
    found = {}
    with _shop(directory / "reads.ev", options, options.engine, ExitStack) as shop:
        for beside in ("nothing", "epochs"):
            epochs = 0
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as readers:
                reading = readers.submit(_read, shop.db.path, shop.customers)
                while not reading.done():
                    if beside == "epochs":
                        shop.epoch()
                        epochs += 1
                    else:
                        time.sleep(0.05)
                times = np.array(reading.result()) * 1000
            p50, p99 = np.percentile(times, [50, 99])
            found |= {f"p50 beside {beside}": p50, f"p99 beside {beside}": p99}
            print(
                f"point reads beside {beside if not epochs else f'{epochs} epochs'}: "
                f"p50 {p50:.3f} ms, p99 {p99:.3f} ms"
            )
    return {name: float(value) for name, value in found.items()}


def _read(path: str, customers: int) -> list[float]:
    keys = np.random.default_rng(1).integers(0, customers, READS).tolist()
    times = []
    with ev.open(path, readonly=True) as db:
        view = db.view("spent")
        for key in keys:
            begun = time.perf_counter()
            view.get(key % 25, key)
            times.append(time.perf_counter() - begun)
            time.sleep(PAUSE)
    return times


def _moves(directory: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for groups, theirs in GROUPS.items():
        groups_here = min(groups, options.rows)
        with ev.open(
            directory / f"{groups}.ev", create=True, engine=options.engine, durability="never"
        ) as db:
            moving = _Moving(db, options.rows, groups_here, options.changes)
            times: dict[tuple[int, bool], list[float]] = {}
            for turn in range(-WARM_UP, options.repeats):
                for share in SHARES:
                    for moved in (False, True):
                        took = moving.epoch(share / 100, moved)
                        if turn >= 0:
                            times.setdefault((share, moved), []).append(took)
            assert db.verify("sums").equal
        found[str(groups)] = {
            f"{share}%": statistics.median(times[share, True])
            / statistics.median(times[share, False])
            for share in SHARES
        }
        ours = ", ".join(f"{ratio:.2f}x at {share}" for share, ratio in found[str(groups)].items())
        print(f"moves between {groups_here:,} groups: {ours}; theirs: {theirs}", flush=True)
    return found


class _Moving:
    """A table whose rows are updated, and a sum of it by group."""

    def __init__(self, db: ev.Database, rows: int, groups: int, changes: int) -> None:
        self._db, self._groups, self._changes = db, groups, changes
        self._random = np.random.default_rng(3)
        self._of = self._random.integers(0, groups, rows)
        columns = {"id": "BIGINT", "grp": "BIGINT", "n": "BIGINT"}
        self._table = db.create_table("t", columns, "id")
        self._put(np.arange(rows))
        db.sql("CREATE MATERIALIZED VIEW sums AS SELECT grp, sum(n) AS n FROM t GROUP BY grp")
        db.maintain()

    def epoch(self, share: float, moved: bool) -> float:
        """A share of the changes are updates, with or without a move; the others are new rows."""
        updated = self._random.choice(len(self._of), round(self._changes * share), replace=False)
        if moved:
            self._of[updated] += 1 + self._random.integers(0, self._groups - 1, len(updated))
            self._of[updated] %= self._groups
        new = np.arange(len(self._of), len(self._of) + self._changes - len(updated))
        self._of = np.append(self._of, self._random.integers(0, self._groups, len(new)))
        self._put(np.append(updated, new))
        begun = time.perf_counter()
        assert not self._db.maintain().failed
        return time.perf_counter() - begun

    def _put(self, ids: Any) -> None:
        amounts = self._random.integers(0, 1000, len(ids))
        self._table.put(pa.table({"id": ids, "grp": self._of[ids], "n": amounts}))


class _Shop:
    """Orders by customers, joined and added up."""

    def __init__(self, db: ev.Database, options: argparse.Namespace) -> None:
        self.db = db
        self.customers = options.rows // 10
        self._rows, self._changes = options.rows, options.changes
        self._random = np.random.default_rng(5)
        ids = np.arange(self.customers)
        customers = db.create_table("customers", {"id": "BIGINT", "region": "INT"}, "id")
        customers.put(pa.table({"id": ids, "region": pa.array(ids % 25, pa.int32())}))
        columns = {"id": "BIGINT", "customer": "BIGINT", "amount": "DECIMAL(12,2)"}
        self._orders = db.create_table("orders", columns, "id")
        self._put(np.arange(self._rows))
        db.sql(VIEW)
        db.maintain()

    def epoch(self) -> float:
        """New orders, changed ones and ones taken back, a third each."""
        third = self._changes // 3
        new = np.arange(self._rows, self._rows + third)
        self._rows += third
        old = self._random.choice(self._rows, self._changes - third, replace=False)
        self._put(np.append(new, old[third:]))
        self._orders.delete(pa.table({"id": old[:third]}))
        begun = time.perf_counter()
        assert not self.db.maintain().failed
        return time.perf_counter() - begun

    def _put(self, ids: Any) -> None:
        amounts = pa.array(self._random.integers(100, 10**6, len(ids)).astype(np.int32))
        self._orders.put(
            pa.table(
                {
                    "id": ids,
                    "customer": self._random.integers(0, self.customers, len(ids)),
                    "amount": amounts.cast(pa.decimal128(12, 2)),
                }
            )
        )


@contextmanager
def _shop(
    path: Path,
    options: argparse.Namespace,
    engine: str,
    way: Callable[[], Any],
    durability: str = "never",
) -> Iterator[_Shop]:
    with ev.open(path, create=True, engine=engine, durability=durability) as db:
        with way():
            shop = _Shop(db, options)
        yield shop


def _in_turns(
    shops: dict[str, _Shop], ways: dict[str, Callable[[], Any]], options: argparse.Namespace
) -> dict[str, Any]:
    """The times of epochs in each way, one in each turn; who is first changes."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    order = list(ways)
    for _ in range(WARM_UP + options.repeats):
        for way in order:
            with ways[way]():
                times[way].append(shops[way].epoch())
        order.append(order.pop(0))
    return {way: np.array(taken[WARM_UP:]) for way, taken in times.items()}


def _dearer(these: Any, those: Any) -> float:
    """By how much, at the median of turns."""
    return float(np.median(these / those)) - 1


def _without(ways: dict[str, Callable[[], Any]]) -> Callable[[], Any]:
    @contextmanager
    def all_off() -> Iterator[None]:
        with ExitStack() as stack:
            for way in ways.values():
                stack.enter_context(way())
            yield

    return all_off


def _without_outbox() -> Any:
    nothing = pa.table({})
    return mock.patch.multiple(state, to_stream=lambda _: b"", from_stream=lambda _: nothing)


def _without_split_rows() -> Any:
    split = sink.split_rows
    return mock.patch.object(
        sink, "split_rows", lambda epoch, new, _: split(epoch, new, [b""] * len(new))
    )


@contextmanager
def _without_checksums() -> Iterator[None]:
    none = bytes(sealed.SEAL)

    def left_open(_: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        return [value + none for value in values]

    def opened(_: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
        return [value[: -sealed.SEAL] for value in values]

    def unchecked(*_: Any) -> None:
        pass

    with (
        mock.patch.multiple(state, sealed=left_open, opened=opened, check=unchecked),
        mock.patch.object(state.ShardState, "_check_gaps", unchecked),
        mock.patch.object(state._Neighbours, "add_new", unchecked),
    ):
        yield


if __name__ == "__main__":
    main()
