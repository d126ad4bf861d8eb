"""What the child processes of the fault tests do; run as a script, a server that forks them.

The server imports everything once and opens nothing, so that a child costs a fork and not a
start of Python. A child reports by appending JSON lines to a file, one `write` each: what is in
the file had happened when the child was killed.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import pyarrow as pa
from click.testing import CliRunner

import everview as ev
from everview.catalog import EPOCH, Epoch
from everview.cli.main import main as main_command
from everview.codec.keys import region_of
from everview.codec.point import encode_key
from everview.errors import EverviewError, PartialWrite, StoreFull
from everview.stores.embedded import EmbeddedStore, space
from everview.stores.embedded.environment import LOOK_SECONDS, Environment
from everview.stores.embedded.state import ShardState
from everview.stores.embedded.writer import Writer

COLUMNS = {"id": "BIGINT", "op": "BIGINT", "text": "STRING"}
REGIONS = 4
KEYS = 2000
Row = dict[str, Any]
Tell = Callable[..., None]


@dataclass(frozen=True)
class Operation:
    """One write of a writer; its number is stored in every row it puts."""

    number: int
    delete: bool
    keys: tuple[int, ...]
    text: str

    def rows(self) -> list[Row]:
        return [{"id": key, "op": self.number, "text": self.text} for key in self.keys]

    def keys_of(self, region: int, regions: int = REGIONS) -> set[int]:
        return {key for key in self.keys if region_of_key(key, regions) == region}


def operations(seed: int, writer: int) -> Iterator[Operation]:
    """The endless work of a writer; the same for the same seed, so that a test can repeat it."""
    chance = random.Random(f"{seed} {writer}")
    number = writer * 1_000_000
    while True:
        number += 1
        size = chance.choice([1, 1, 2, 5, 40, 300, 900])
        keys = tuple(chance.sample(range(KEYS), size))
        text = f"{number}:" + "x" * chance.choice([0, 3, 30, 150])
        yield Operation(number, chance.random() < 0.25, keys, text)


@cache
def region_of_key(key: int, regions: int = REGIONS) -> int:
    columns = ev.TableSchema.of("t", COLUMNS, "id").key_columns
    encoded = encode_key(columns, (key,))
    assert encoded is not None
    return region_of(encoded, regions)


def keys_in(region: int, count: int = 1, regions: int = REGIONS) -> list[int]:
    """The first keys that lie in a region."""
    return [key for key in range(KEYS) if region_of_key(key, regions) == region][:count]


def make(path: str, regions: int = REGIONS, **options: Any) -> None:
    with ev.open(path, create=True, **options) as db:
        db.create_table("t", COLUMNS, "id", regions=regions)


def wait_for(path: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear within {seconds} s")
        time.sleep(0.002)


def write_until_killed(tell: Tell, path: str, seed: int, writer: int = 0) -> None:
    write_many(tell, path, seed, writer, sys.maxsize)


def write_many(
    tell: Tell, path: str, seed: int, writer: int, count: int, map_size: int | None = None
) -> None:
    table = ev.open(path, map_size=map_size).table("t")
    work = operations(seed, writer)
    for _ in range(count):
        apply(tell, table, next(work))


def apply(tell: Tell, table: ev.Table, operation: Operation) -> None:
    delete, keys = operation.delete, list(operation.keys)
    report = table.delete(keys) if delete else table.put(operation.rows())
    tell(op=operation.number, sequences=dict(report.sequences))


def die_after_commits(tell: Tell, path: str, rows: list[Row], commits: int) -> None:
    """Put rows, and be killed as soon as so many regions are committed."""
    table = ev.open(path).table("t")
    note = Writer._note

    def note_and_die(self: Writer, *arguments: Any) -> None:
        note(self, *arguments)
        if len(self._committed) == commits:
            os.kill(os.getpid(), signal.SIGKILL)

    Writer._note = note_and_die  # type: ignore[assignment,method-assign]
    table.put(rows)
    tell(done=True)


class Killer(ev.Observer):
    """Kills its process before, or after, so many regions were written."""

    def __init__(self, moment: str, calls: int) -> None:
        self._moment = moment
        self._calls = calls

    def before(self, write: ev.Write) -> None:
        self._count("before")

    def after(self, write: ev.Write) -> None:
        self._count("after")

    def _count(self, moment: str) -> None:
        if moment == self._moment:
            self._calls -= 1
            if self._calls == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def die_in_observer(tell: Tell, path: str, rows: list[Row], moment: str, calls: int) -> None:
    table = ev.open(path).table("t")
    table.attach(Killer(moment, calls))
    table.put(rows)
    tell(done=True)


def read_until_killed(tell: Tell, path: str, readonly: bool = False) -> None:
    """Begin a scan of every region and stop in the middle."""
    store = EmbeddedStore(path, readonly=readonly)
    scan = store.scan("t", batch_rows=10)
    next(scan)
    tell(reading=True)
    time.sleep(60)


class Holder(ev.Observer):
    """Keeps the write transaction open until a file appears."""

    def __init__(self, tell: Tell, release: str) -> None:
        self._tell = tell
        self._release = release

    def before(self, write: ev.Write) -> None:
        self._tell(holding=write.region)
        wait_for(self._release)


def hold(tell: Tell, path: str, key: int, release: str) -> None:
    table = ev.open(path).table("t")
    table.attach(Holder(tell, release))
    table.put({"id": key, "op": 1, "text": "held"})
    tell(done=True)


def put(tell: Tell, path: str, rows: list[Row], go: str = "") -> None:
    """Put rows; with `go`, read the table first and wait for that file in between."""
    table = ev.open(path).table("t")
    if go:
        tell(rows=len(table))
        wait_for(go)
    report = table.put(rows)
    tell(sequences=dict(report.sequences))


def get(tell: Tell, path: str, key: int, readonly: bool, go: str = "") -> None:
    """Get a row and count the rows; with `go`, again when that file appears."""
    table = ev.Database(EmbeddedStore(path, readonly=readonly)).table("t")
    tell(row=table.get(key), rows=table.to_arrow().num_rows)
    if go:
        wait_for(go)
        tell(row=table.get(key), rows=table.to_arrow().num_rows)


def use(tell: Tell, path: str, go: str = "") -> None:
    """Read and write table t and shard 0 of the state s, and say what fails; with `go`, when they
    are open and that file has appeared."""

    def tell_of(what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except EverviewError as error:
            tell(what=what, error=_name(error), message=str(error))
        else:
            tell(what=what, error=None)

    def everything() -> None:
        tell_of("put", lambda: db.table("t").put({"id": 1, "op": 1, "text": "x"}))
        tell_of("get", lambda: db.table("t").get(1))
        tell_of("scan", lambda: list(db.table("t").scan()))
        tell_of("shard", lambda: list(db.store.states.shard("s", 0).values()))
        tell_of("fence", lambda: db.store.states.shard("s", 0).fence(1))

    try:
        db = ev.open(path)
    except EverviewError as error:
        tell(what="open", error=_name(error), message=str(error))
        return
    everything()
    if go:
        tell(ready=True)
        wait_for(go)
        time.sleep(2 * LOOK_SECONDS)
        tell(now=True)
        everything()


def compact(tell: Tell, path: str, die_at: int = 0) -> None:
    """Compact a database, and be killed at the step of that number: a write, a sync, a hole."""
    db, steps = ev.open(path), count(1)

    def step(work: Callable[..., Any]) -> Callable[..., Any]:
        def at(*arguments: Any) -> Any:
            if next(steps) == die_at:
                die()
            done = work(*arguments)
            if next(steps) == die_at:
                die()
            return done

        return at

    for name in ("_touch", "sync_file", "_punch_hole"):
        setattr(space, name, step(getattr(space, name)))
    report = db.compact()
    tell(steps=next(steps) - 1, given_back=report.given_back, skipped=report.skipped)


def compact_on(tell: Tell, path: str) -> None:
    """Compact a database again and again."""
    db = ev.open(path)
    while True:
        tell(given_back=db.compact().given_back, skipped=db.compact().skipped)


def pin_on(tell: Tell, path: str, seed: int) -> None:
    """Hold pins for a while, again and again; each gives the same rows at its end."""
    db, chance = ev.open(path, readonly=True), random.Random(seed)
    while True:
        with db.pin() as at:
            before = at.table("t").to_arrow()
            time.sleep(chance.random() / 20)
            assert at.table("t").to_arrow() == before
            tell(rows=before.num_rows)


def epochs(tell: Tell, path: str, number: int) -> None:
    """What a maintainer does: apply epochs to a shard, each once, and commit them."""
    db = ev.open(path)
    shard = db.store.states.shard("s", 0)
    for epoch in range(1, number + 1):
        keys = [b"%d" % (epoch * n % 500) for n in range(300)]
        values = [b"%d " % epoch * 50] * 300

        def work(state: ShardState, keys: Any = keys, values: Any = values) -> pa.Table:
            state.put_many(keys, values)
            return pa.table({})

        shard.apply(epoch, 1, work)
        db.store.catalog.write({EPOCH: Epoch(epoch)})
        tell(epoch=epoch)


def many_tables(tell: Tell, path: str, tables: int, files: int) -> None:
    """Create and use tables in a process that may have few files open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with ev.open(path, create=True, durability="interval") as db:
        for n in range(tables):
            db.create_table(f"t{n}", {"id": "INT", "n": "INT"}, "id", regions=2)
        for turn in range(2):
            for n in range(tables):
                db.table(f"t{n}").put([{"id": key, "n": n + turn} for key in range(10)])
        tell(open=len(os.listdir("/proc/self/fd")))
        sums = [sum(row["n"] for row in db.table(f"t{n}").scan()) for n in range(tables)]
        tell(sums=sums, status=len(db.status()))
        try:
            pins = [db.pin(f"t{n}") for n in range(tables)]
        except EverviewError as error:
            tell(error=_name(error), message=str(error))
        else:
            tell(pins=len(pins))


def command(tell: Tell, arguments: list[str]) -> None:
    """Run a command of the shell."""
    done = CliRunner().invoke(main_command, arguments)
    tell(code=done.exit_code, text=done.output, failed_with=repr(done.exception))


def drop(tell: Tell, path: str, again: dict[str, str] | None = None) -> None:
    """Drop the table; with `again`, create it anew with these columns."""
    db = ev.open(path)
    db.drop_table("t")
    if again:
        db.create_table("t", again, "id", regions=REGIONS)
    tell(done=True)


def add_column(tell: Tell, path: str, rows: list[Row]) -> None:
    """Add a column to the table, then put rows that have it."""
    table = ev.open(path).table("t")
    table.add_columns({"note": "STRING"})
    table.put(rows)
    tell(done=True)


def create(tell: Tell, path: str, go: str) -> None:
    wait_for(go)
    with ev.open(path, create=True) as db:
        tell(tables=db.tables())


def die_creating(tell: Tell, path: str, at: str) -> None:
    """Be killed where a database is created: when `os.<at>` is called for the last time."""
    original = getattr(os, at)

    def die(*arguments: Any, **options: Any) -> Any:
        if at != "makedirs":
            os.kill(os.getpid(), signal.SIGKILL)
        done = original(*arguments, **options)
        if str(arguments[0]).endswith(("tables", "catalog")):
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(os, at, die)
    ev.open(path, create=True)
    tell(done=True)


def die_creating_table(tell: Tell, path: str, regions: int) -> None:
    """Be killed when so many regions of a new table exist."""
    db = ev.open(path)
    made = db.store._acquire

    def acquire(path: str, names: tuple[str, ...], create: bool = False) -> Any:
        if create and path.endswith(f"/{regions}"):
            os.kill(os.getpid(), signal.SIGKILL)
        return made(path, names, create)

    db.store._acquire = acquire  # type: ignore[method-assign]
    db.create_table("t", COLUMNS, "id", regions=REGIONS)
    tell(done=True)


def create_tables(tell: Tell, path: str, count: int) -> None:
    """Create tables until one can't be created, and go on using the others."""
    with ev.open(path) as db:
        try:
            for n in range(count):
                db.create_table(f"t{n}", COLUMNS, "id", regions=1)
        except EverviewError as error:
            tell(error=_name(error), message=str(error))
        tell(tables=db.tables(), rows=[len(db.table(name)) for name in db.tables()])


def limit_file_size(size: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def fill(tell: Tell, path: str, seed: int, limit: int) -> None:
    """Write until files may not grow further; read; write on when they may."""
    table = ev.open(path).table("t")
    limit_file_size(limit)
    for operation in operations(seed, 0):
        try:
            apply(tell, table, operation)
        except PartialWrite as error:
            tell(partial=operation.number, sequences=error.applied, cause=_name(error.__cause__))
            break
        except StoreFull as error:
            tell(full=operation.number, message=str(error))
            break
    tell(rows=table.to_arrow().num_rows, row=table.get(operation.keys[0]))
    for attempt in range(3):
        try:
            table.put(operation.rows())
        except EverviewError as error:
            tell(again=attempt, error=_name(error))
    limit_file_size(resource.RLIM_INFINITY)
    report = table.put(Operation(999, False, operation.keys, "room again").rows())
    tell(op=999, sequences=dict(report.sequences))


def _name(error: BaseException | None) -> str:
    return type(error).__name__


def fork_after_open(tell: Tell, path: str) -> None:
    """Use the same handle in a process and its child, at once."""
    table = ev.open(path).table("t")
    table.put({"id": 1, "op": 1, "text": "before the fork"})
    child = os.fork()
    for n in range(50):
        table.put({"id": n, "op": n, "text": "child" if child == 0 else "parent"})
    if child == 0:
        tell(child=table.get(1))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    tell(parent=table.get(1), rows=len(table), status=status)


def fork_in_scan(tell: Tell, path: str) -> None:
    """Fork while a scan is open; the child lets go of it; the parent reads on after updates."""
    table = ev.open(path).table("t")
    table.put([{"id": key, "op": 1, "text": "old"} for key in range(KEYS)])
    scan = table.batches(batch_rows=10, ordered=False)
    found = next(scan).num_rows
    child = os.fork()
    if child == 0:
        del scan
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(30):
        table.put([{"id": key, "op": 2, "text": "new"} for key in range(KEYS)])
        table.trim()
    old = sum(batch.column("op").to_pylist().count(1) for batch in scan)
    tell(old=found + old)


def fork_with_lock_held(tell: Tell, path: str) -> None:
    """Fork while another thread holds the lock under which a store opens regions."""
    db = ev.open(path)
    held, done = threading.Event(), threading.Event()

    def hold_lock() -> None:
        with db.store._lock:
            held.set()
            done.wait()

    threading.Thread(target=hold_lock, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        db.table("t").put({"id": 1})
        tell(child=len(db.table("t")))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    done.set()
    tell(status=status)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_write(step: int, moment: str) -> Iterator[int]:
    """Be killed at the step-th write from now on; gives the numbers of those to come."""
    update, numbers = Environment.update, count(1)

    def at(self: Environment, work: Callable[[Any], Any]) -> Any:
        due = next(numbers) == step
        if due and moment == "before":
            die()
        done = update(self, (lambda txn: (work(txn), die())) if due and moment == "in" else work)
        if due:
            die()
        return done

    Environment.update = at  # type: ignore[method-assign,assignment]
    return numbers


def maintain(tell: Tell, path: str, step: int, moment: str) -> None:
    """Maintain with Sail, and be killed before, in or after the step-th write to disk; at none of
    them if that is 0."""
    with ev.open(path, engine="sail") as db:
        assert db.engine
        numbers = die_at_write(step, moment)
        assert not db.maintain().failed
        tell(steps=next(numbers) - 1)


def import_engine() -> None:
    """What children that maintain would each import; it starts no thread."""
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
    for name in (
        "everview.maintain.maintainer",
        "pysail.spark",
        "pyspark.sql.connect.session",
        "pandas",
    ):
        importlib.import_module(name)


def main() -> None:
    """Read one job a line, fork a child for it, answer with its process id."""
    for line in sys.stdin:
        job, arguments, reports = json.loads(line)
        if job == maintain.__name__:
            import_engine()
        child = os.fork() if job != "wait" else 0
        if job == "wait":
            answer = os.waitpid(arguments["pid"], os.WNOHANG if arguments["poll"] else 0)
            print(json.dumps(answer), flush=True)
        elif child == 0:
            _run(globals()[job], arguments, reports)
        else:
            print(child, flush=True)


def _run(job: Callable[..., None], arguments: dict[str, Any], reports: str) -> None:
    file = os.open(reports, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(**report: Any) -> None:
        os.write(file, json.dumps(report, default=str).encode() + b"\n")

    status = 0
    try:
        job(tell, **arguments)
    except BaseException as error:
        tell(failed=type(error).__name__, message=str(error), trace=traceback.format_exc())
        status = 1
    os._exit(status)


if __name__ == "__main__":
    main()
