"""One maintainer at a time: the dead lose the lease at once, the stopped soon."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from everview.catalog import EPOCH, Epoch
from everview.errors import Superseded
from everview.state import State
from everview.stores.base import WORK
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.lease import locked
from tests.shards import new_shard

LEASE = 1.0
HOLD = """
import sys, time
from everview.catalog import EPOCH, Epoch
from everview.errors import Superseded
from everview.stores.embedded import EmbeddedStore
store = EmbeddedStore(sys.argv[1])
with store.leases.hold("MAINTAINER", 60.0, lambda holder: None) as token:
    print("held", token, flush=True)
    sys.stdin.readline()
    try:
        store.catalog.write({EPOCH: Epoch(99)}, token)
        print("written", flush=True)
    except Superseded as error:
        print("superseded", flush=True)
"""
WRITE = """
import sys, time, pyarrow as pa
from everview.catalog import EPOCH, Epoch
from everview.errors import Superseded
from everview.stores.embedded import EmbeddedStore
store = EmbeddedStore(sys.argv[1])
with store.leases.hold("MAINTAINER", 60.0, lambda holder: None) as token:
    def work(state):
        state.put_many([b"k"], [b"stale"])
        print("writing", flush=True)
        time.sleep(0.5)
        return pa.table({})
    try:
        store.states.shard("s", 0).apply(2, token, work)
        print("written", flush=True)
        store.catalog.write({EPOCH: Epoch(99)}, token)
    except Superseded:
        print("superseded", flush=True)
"""

HOLD_IN_A_THREAD = """
import sys, threading, time
from everview.stores.embedded import EmbeddedStore
store = EmbeddedStore(sys.argv[1])
def hold():
    with store.leases.hold("MAINTAINER", 60.0, lambda holder: None) as token:
        print("held", token, flush=True)
        time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
time.sleep(1)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    store = EmbeddedStore(str(tmp_path / "t.ev"), create=True, durability="never")
    yield store
    store.close()


@contextmanager
def child(code: str, store: EmbeddedStore) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, store.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def quietly(holder: str) -> None:
    pass


def put(value: bytes) -> Callable[[State], pa.Table]:
    def work(state: State) -> pa.Table:
        state.put_many([b"k"], [value])
        return pa.table({})

    return work


def test_threads_take_turns(store: EmbeddedStore) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with store.leases.hold(WORK, 60, quietly):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.001)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1
    assert store.leases.token == 1


def test_a_killed_holder_loses_the_lease_at_once(store: EmbeddedStore) -> None:
    with child(HOLD, store) as holder:
        assert said(holder) == "held 1"
        holder.kill()
        holder.wait()
        began = time.monotonic()
        with store.leases.hold(WORK, 60, quietly) as token:
            assert time.monotonic() - began < 1
            assert token == 1


def test_a_holder_that_beats_keeps_it_and_is_told_of(store: EmbeddedStore) -> None:
    waits: list[str] = []

    class TookLong(Exception):
        pass

    began = time.monotonic()

    def waiting(holder: str) -> None:
        waits.append(holder)
        if time.monotonic() - began > 3 * LEASE:
            raise TookLong

    with child(HOLD, store) as holder:
        assert said(holder) == "held 1"
        with pytest.raises(TookLong), store.leases.hold(WORK, LEASE, waiting):
            pass
        assert set(waits) == {f"process {holder.pid}"}
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert said(holder) == "written"
    assert store.catalog.get(EPOCH) == Epoch(99)


def test_a_stopped_holder_is_superseded_and_then_writes_nothing(store: EmbeddedStore) -> None:
    with child(HOLD, store) as stopped:
        assert said(stopped) == "held 1"
        os.kill(stopped.pid, signal.SIGSTOP)
        began = time.monotonic()
        with store.leases.hold(WORK, LEASE, quietly) as token:
            assert LEASE <= time.monotonic() - began < 3 * LEASE
            assert token == 2
            assert not store.leases.is_fenced
            store.leases.set_fenced(token)
            store.catalog.write({EPOCH: Epoch(7)}, token)
            os.kill(stopped.pid, signal.SIGCONT)
            assert stopped.stdin is not None
            stopped.stdin.write("\n")
            stopped.stdin.flush()
            assert said(stopped) == "superseded"
    assert store.catalog.get(EPOCH) == Epoch(7)
    with store.leases.hold(WORK, LEASE, quietly) as token:
        assert token == 2
        assert store.leases.is_fenced


def test_a_holder_stopped_in_the_middle_of_a_write_leaves_a_copy(store: EmbeddedStore) -> None:
    for number in (0, 1):
        new_shard(store, "s", number).load(1, 1, put(b"first"))
    with child(WRITE, store) as stopped:
        assert said(stopped) == "writing"
        os.kill(stopped.pid, signal.SIGSTOP)
        with store.leases.hold(WORK, LEASE, quietly) as token:
            state = store.states.fence(["s"], token)["s"]
            assert state != "s"
            assert [store.states.shard(state, number).get(b"k") for number in (0, 1)] == [
                b"first"
            ] * 2
            store.states.shard(state, 0).apply(2, token, put(b"second"))
            store.states.drop("s")
            os.kill(stopped.pid, signal.SIGCONT)
            assert [said(stopped), said(stopped)] == ["written", "superseded"]
            assert store.states.shard(state, 0).get(b"k") == b"second"
            with pytest.raises(Superseded):
                store.states.shard(state, 1).apply(2, token - 1, put(b"stale"))


def test_a_state_that_nobody_writes_is_fenced_where_it_is(store: EmbeddedStore) -> None:
    new_shard(store, "s", 0).load(1, 1, put(b"first"))
    assert store.states.fence(["s"], 2) == {"s": "s"}
    with pytest.raises(Superseded):
        store.states.shard("s", 0).apply(2, 1, put(b"stale"))


def test_a_process_ends_although_a_thread_of_it_holds_the_lease(store: EmbeddedStore) -> None:
    with child(HOLD_IN_A_THREAD, store) as holder:
        assert said(holder) == "held 1"
        assert holder.wait(30) == 0


@contextmanager
def forked() -> Iterator[None]:
    """A child that was forked before the block, and does nothing until it ends."""
    process = os.fork()
    if process == 0:
        while True:
            time.sleep(60)
    try:
        yield
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def test_a_child_forked_meanwhile_keeps_no_lock(store: EmbeddedStore) -> None:
    path = os.path.join(store.path, "lock")
    with ExitStack() as children:
        with store.leases.hold(WORK, 60.0, lambda holder: None) as first, locked(path):
            children.enter_context(forked())
        with locked(path, 1.0):
            pass
        begun = time.monotonic()
        with store.leases.hold(WORK, LEASE, lambda holder: None) as second:
            assert time.monotonic() - begun < LEASE
        assert first == second, "nobody had to be superseded"


def test_a_child_that_leaves_the_block_lets_go_of_nothing(store: EmbeddedStore) -> None:
    path = os.path.join(store.path, "lock")
    process = 0
    with suppress(SystemExit), locked(path):
        process = os.fork()
        if process == 0:
            sys.exit()
        os.waitpid(process, 0)
        with pytest.raises(TimeoutError), locked(path, 0.1):
            pass
    if process == 0:
        os._exit(0)
