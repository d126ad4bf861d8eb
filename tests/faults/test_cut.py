"""Files that were cut, deleted or replaced: told, with the path; no process is killed by them, and
nothing is written where no one will find it."""

from __future__ import annotations

import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import lmdb
import pyarrow as pa
import pytest

import everview as ev
from everview.errors import Damaged, DatabaseClosed, TableNotFound
from everview.stores.embedded.environment import LOOK_SECONDS
from everview.stores.embedded.pages import pages_of
from everview.stores.embedded.state import ShardState
from tests.shards import new_shard

from .processes import Child, Server
from .workload import make

PAGE = 4096
PARTS = {"table": "tables/000001/0", "state": "state/s/0", "catalog": "catalog"}
# what fails if a part is damaged; all else goes on
TOUCHED = {
    "table": {"put", "get", "scan"},
    "state": {"shard", "fence"},
    "catalog": {"put", "get", "scan"},
}
DAMAGES = {
    "empty": lambda data: b"",
    "a part of a meta page": lambda data: data[:100],
    "one meta page": lambda data: data[:PAGE],
    "5,000 bytes": lambda data: data[:5000],
    "two meta pages": lambda data: data[: 2 * PAGE],
    "half": lambda data: data[: len(data) // 2],
    "all but a byte": lambda data: data[:-1],
    "no meta pages": lambda data: bytes(2 * PAGE) + data[2 * PAGE :],
    "noise for meta pages": lambda data: random.Random(1).randbytes(2 * PAGE) + data[2 * PAGE :],
    "noise behind the magic": lambda data: data[:24] + random.Random(1).randbytes(200) + data[224:],
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A database with one region of rows, a shard of state, and no free pages at the end."""
    path = str(tmp_path / "test.ev")
    make(path, regions=1)
    with ev.open(path) as db:
        db.table("t").put([{"id": key, "op": 1, "text": "x" * 100} for key in range(2000)])
        db.create_table("other", {"id": "INT", "text": "STRING"}, "id", regions=1).put({"id": 1})
        shard = new_shard(db.store, "s", 0)
        shard.environment.update(
            lambda txn: ShardState(txn, shard.environment.dbs).put_many(
                [b"%d" % n for n in range(2000)], [b"x" * 100] * 2000
            )
        )
    return path


def data_of(path: str, part: str) -> Path:
    return Path(path, PARTS[part], "data.mdb")


def results(child: Child) -> dict[str, dict[str, Any]]:
    """What became of each thing that `use` tried."""
    return {report["what"]: report for report in child.result() if "what" in report}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_a_file_that_was_cut_is_damaged_and_kills_no_one(
    server: Server, path: str, part: str, damage: str
) -> None:
    file = data_of(path, part)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    found = results(server.start("use", path=path))
    if part == "catalog":
        assert found.keys() == {"open"}
    else:
        assert {what for what, report in found.items() if report["error"]} == TOUCHED[part]
    for report in found.values():
        if report["error"]:
            assert report["error"] == "Damaged"
            assert str(file.parent) in report["message"]
            remedy = "everview verify" if part == "state" else "restore it from a copy"
            assert remedy in report["message"]


@pytest.mark.parametrize("part", ["table", "catalog"])
@pytest.mark.parametrize("arguments", [["scan", "t"], ["status"], ["put", "t", '{"id": 1}']])
def test_a_command_says_that_a_file_was_cut(
    server: Server, path: str, part: str, arguments: list[str]
) -> None:
    file = data_of(path, part)
    os.truncate(file, file.stat().st_size // 2)
    name, *others = arguments
    (told,) = server.start("command", arguments=[name, path, *others]).result()
    assert told["code"] == 1
    assert told["text"].startswith("error[EV105]: ")
    assert str(file.parent) in told["text"]
    assert "restore it from a copy" in told["text"]
    assert "Traceback" not in told["text"]


@pytest.mark.parametrize("size", [0, 5000, 100_000])
@pytest.mark.parametrize("part", PARTS)
def test_a_file_that_is_cut_while_it_is_open_kills_no_one_either(
    server: Server, path: str, tmp_path: Path, part: str, size: int
) -> None:
    """If it is cut in the middle of a transaction, it may: what is looked at is the beginning."""
    go, file = tmp_path / "go", data_of(path, part)
    size = min(size, file.stat().st_size // 2)
    child = server.start("use", path=path, go=str(go))
    child.wait_for_report("ready")
    os.truncate(file, size)
    go.touch()
    reports = child.result()
    before, after = (
        reports[: reports.index({"now": True})],
        reports[reports.index({"now": True}) + 1 :],
    )
    assert not any(report.get("error") for report in before)
    failed = {report["what"] for report in after if report["error"]}
    assert failed == TOUCHED[part]
    assert {report["error"] for report in after if report["error"]} == {"Damaged"}


def test_a_file_may_end_before_pages_that_are_free(tmp_path: Path) -> None:
    """LMDB does not write pages that a transaction took and let go of."""
    opened = lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=1)
    rows = opened.open_db(b"rows")
    with opened.begin(write=True) as txn:
        txn.put(b"a", b"1", db=rows)
    for items, size in ((20_000, 100), (200, 50_000)):
        with opened.begin(write=True) as txn:
            for n in range(items):
                txn.put(b"%08d" % n, b"x" * size, db=rows)
            for n in range(items):
                txn.delete(b"%08d" % n, db=rows)
    last = opened.info()["last_pgno"]
    opened.close()
    file = tmp_path / "data.mdb"
    assert file.stat().st_size < (last + 1) * PAGE, "else this shows nothing"
    with pages_of(str(file)) as pages:
        pages.check()
        meta = pages.meta()
        free = {page for _, some in pages.free(meta) for page in some.tolist()}
        used = max(set(range(meta.last_page + 1)) - free)
        os.truncate(file, (used + 1) * PAGE)
        pages.check()
        with lmdb.open(str(tmp_path), max_dbs=1) as again, again.begin() as txn:
            assert txn.get(b"a", db=again.open_db(b"rows", txn)) == b"1"
        os.truncate(file, used * PAGE)
        with pytest.raises(Damaged, match="it was cut"):
            pages.check()


@pytest.mark.parametrize("seed", range(5))
def test_pages_are_used_or_free_and_never_both(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    opened = lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=1)
    rows = opened.open_db(b"rows")
    reader = opened.begin() if chance.random() < 0.5 else None
    for _ in range(20):
        with opened.begin(write=True) as txn:
            for _ in range(chance.randrange(600)):
                key, size = b"%d" % chance.randrange(1000), chance.choice([10, 100, 3000, 20_000])
                if chance.random() < 0.6:
                    txn.put(key, b"x" * size, db=rows)
                else:
                    txn.delete(key, db=rows)
        with pages_of(str(tmp_path / "data.mdb")) as pages:
            pages.check()
            meta = pages.meta()
            free = [page for _, some in pages.free(meta) for page in some.tolist()]
        assert meta.commit == opened.info()["last_txnid"]
        with opened.begin() as txn:
            trees = [txn.stat(rows), opened.stat()]
        used = sum(
            tree[kind]
            for tree in trees
            for kind in ("branch_pages", "leaf_pages", "overflow_pages")
        )
        assert len(set(free)) == len(free)
        of_the_list_itself = meta.last_page + 1 - 2 - used - len(free)
        assert 0 <= of_the_list_itself <= 20
    if reader is not None:
        reader.abort()
    opened.close()


def test_a_write_to_a_database_that_was_deleted_says_so(path: str) -> None:
    with ev.open(path) as db:
        table, shard = db.table("t"), db.store.states.shard("s", 0)
        shard.fence(1)
        shutil.rmtree(path)
        for write in (
            lambda: table.put({"id": 1}),
            lambda: table.delete([1]),
            lambda: shard.fence(2),
            lambda: db.create_table("more", {"id": "INT"}, "id"),
        ):
            with pytest.raises(DatabaseClosed, match=f"{path} was deleted, moved or replaced"):
                write()


@pytest.mark.parametrize("where", ["elsewhere", "nowhere"])
def test_a_write_to_a_database_that_was_replaced_goes_to_neither(path: str, where: str) -> None:
    with ev.open(path) as db:
        table, shard = db.table("t"), db.store.states.shard("s", 0)
        table.put({"id": 1, "op": 1})
        if where == "elsewhere":
            os.rename(path, f"{path}.old")
            shutil.copytree(f"{path}.old", path)
        else:
            shutil.rmtree(path)
            make(path, regions=1)
        for write in (lambda: table.put({"id": 1, "op": 2}), lambda: shard.fence(2)):
            with pytest.raises(DatabaseClosed, match="was deleted, moved or replaced"):
                write()
    with ev.open(path) as now:
        assert (now.table("t").get(1) or {"op": 1})["op"] == 1


def test_reads_of_a_database_that_was_deleted_go_on_or_say_so(path: str) -> None:
    with ev.open(path) as db:
        scan = db.table("t").batches(batch_rows=10)
        next(scan)
        shutil.rmtree(path)
        assert sum(batch.num_rows for batch in scan) == 1990, "what has begun goes on"
        time.sleep(2 * LOOK_SECONDS)
        with pytest.raises(DatabaseClosed, match="was deleted"):
            db.table("t").get(1)


def test_a_region_or_shard_that_was_deleted_alone_is_told_as_gone(path: str) -> None:
    with ev.open(path) as db:
        table, shard = db.table("t"), db.store.states.shard("s", 0)
        table.put({"id": 1})
        shard.fence(1)
        shutil.rmtree(Path(path, "tables"))
        shutil.rmtree(Path(path, "state", "s"))
        with pytest.raises(Damaged, match=r"tables/000001/0 is damaged or gone"):
            table.put({"id": 1})
        with pytest.raises(Damaged, match=r"state/s/0 is damaged or gone: .*everview verify"):
            shard.apply(1, 1, lambda state: pa.table({}))


def test_a_write_to_a_table_that_is_dropped_meanwhile_does_not_find_it(
    path: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ev.open(path) as db:
        table = db.table("t")
        table.put({"id": 1})
        original = db.store._write

        def late(*arguments: Any) -> Any:
            server.start("drop", path=path).result()
            return original(*arguments)

        monkeypatch.setattr(db.store, "_write", late)
        with pytest.raises(TableNotFound, match="there is no table t"):
            table.put({"id": 2})
