"""Bytes that changed on disk, and directories that are no databases: told, never guessed."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import everview as ev
from everview.codec.buffers import fold_one
from everview.codec.point import encode_key
from everview.errors import Damaged, DatabaseError, FormatMismatch, NotADatabase
from everview.stores.embedded import EmbeddedStore, opening
from everview.stores.embedded.datafile import DataFile

from .invariants import check
from .processes import Server
from .workload import COLUMNS, Row, make

KNOWN = "a long and well known string " * 4
MASK = (1 << 64) - 1


@pytest.fixture
def damaged(tmp_path: Path) -> Any:
    """Makes a database with one long row, with some bytes of that row or its log changed."""

    def make_damaged(what: str, chance: random.Random) -> str:
        path = str(tmp_path / f"{what}{chance.random()}.ev")
        make(path, regions=1)
        with ev.open(path) as db:
            db.table("t").put([{"id": key, "op": key, "text": f"{key}"} for key in range(20)])
            db.table("t").put({"id": 7, "op": 1, "text": KNOWN})
        file = Path(path, "tables", "000001", "0", "data.mdb")
        data = bytearray(file.read_bytes())
        for place in places(data, what):
            at = place + chance.randrange(-20, len(KNOWN))
            data[at] ^= chance.randrange(1, 256)
        file.write_bytes(data)
        return path

    return make_damaged


def places(data: bytearray, what: str) -> list[int]:
    """Where the known string lies in a row, or in a chunk of the log: that has a header more."""
    one_change = bytes([1, 0, 1, 0, 1, 0, 0, 0])
    found = []
    at = data.find(KNOWN.encode())
    while at >= 0:
        if (one_change in data[at - 120 : at]) == (what == "log"):
            found.append(at)
        at = data.find(KNOWN.encode(), at + 1)
    assert found, f"the {what} is not in the file"
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_byte_in_a_row_is_found_by_every_way_of_reading(damaged: Any, seed: int) -> None:
    path = damaged("row", random.Random(seed))
    with ev.open(path) as db:
        table = db.table("t")
        ways = {
            "get": lambda: table.get(7),
            "get_many": lambda: table.get_many([1, 7]).to_pylist(),
            "scan": lambda: list(table.scan()),
            "scan of one column": lambda: list(table.scan(columns=["op"])),
            "range": lambda: list(table.scan(5, 9)),
            "where": lambda: table.to_arrow(where=pc.field("op") == 1),
        }
        for way, read in ways.items():
            with pytest.raises(Damaged, match="table t, region 0"):
                pytest.fail(f"{way} gave {read()}")
        assert table.get(8) == {"id": 8, "op": 8, "text": "8"}, "other rows are not affected"


@pytest.mark.parametrize("seed", range(20))
def test_a_changed_byte_in_the_log_is_found_by_who_reads_changes(damaged: Any, seed: int) -> None:
    path = damaged("log", random.Random(seed))
    with ev.open(path) as db:
        table = db.table("t")
        with pytest.raises(Damaged):
            pytest.fail(f"changes gave {list(table.changes())}")
        assert table.get(7) == {"id": 7, "op": 1, "text": KNOWN}, "the row is not affected"


def test_damage_of_the_log_is_told_with_its_table_and_region(damaged: Any) -> None:
    with ev.open(damaged("log", random.Random(1))) as db:
        with pytest.raises(Damaged, match="table t, region 0"):
            list(db.table("t").changes())
        with pytest.raises(Damaged, match="table t, region 0"):
            list(db.store.scan("t", at={0: 20}))


def test_damage_of_a_row_does_not_get_into_the_log_when_it_is_replaced(damaged: Any) -> None:
    """A before-image that fails its checksum would be a wrong value with a right checksum."""
    with ev.open(damaged("row", random.Random(1))) as db:
        table = db.table("t")
        with pytest.raises(Damaged, match="table t, region 0"):
            table.put({"id": 7, "op": 2, "text": "new"})
        assert table.log()[0].last == 21


def test_damage_of_a_row_does_not_get_into_the_log_when_it_is_deleted(damaged: Any) -> None:
    with ev.open(damaged("row", random.Random(1))) as db:
        table = db.table("t")
        with pytest.raises(Damaged, match="table t, region 0"):
            table.delete([7])
        assert table.log()[0].last == 21


def test_a_damaged_row_has_no_version_and_passes_no_test(damaged: Any) -> None:
    with ev.open(damaged("row", random.Random(1))) as db:
        with pytest.raises(Damaged, match="table t, region 0"):
            db.table("t").version(7)
        with pytest.raises(Damaged, match="table t, region 0"):
            db.table("t").test_and_set(7, None, version=21)


KEYS = {"BIGINT": lambda n: n * 0x01020304050607, "STRING": lambda n: f"the key {n:04d} of a row"}


@pytest.fixture(scope="module", params=KEYS)
def keyed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes tables of 300 rows, of which one has some byte of its stored key changed on disk."""
    original = tmp_path_factory.mktemp("keyed") / "whole.ev"
    rows = {key: {"id": key, "op": n} for n in range(300) if (key := KEYS[request.param](n))}
    with ev.open(original, create=True) as db:
        table = db.create_table("t", {"id": request.param, "op": "INT"}, "id", regions=1)
        table.put([row | {"op": -1} for row in rows.values()])
        position = table.log()[0].last
        table.put(list(rows.values()))
        one = db.store._layout("t").schema.key_columns

    def make_damaged(seed: int) -> tuple[Path, Any, dict[Any, Row], int]:
        chance = random.Random(seed)
        path, key = original.with_name(f"{seed}.ev"), chance.choice(list(rows))
        shutil.copytree(original, path)
        file, stored = path / "tables/000001/0/data.mdb", encode_key(one, [key])
        assert stored
        changed, at = bytearray(stored), chance.randrange(len(stored))
        changed[at] ^= chance.randrange(1, 256)
        data, length = file.read_bytes(), len(stored).to_bytes(2, "little")  # LMDB's, before a key
        assert length + stored in data
        file.write_bytes(data.replace(length + stored, length + changed))
        return path, key, rows, position

    return make_damaged


@pytest.mark.parametrize("seed", range(25))
def test_a_changed_byte_in_a_key_is_missed_by_no_one(keyed: Any, seed: int) -> None:
    path, key, rows, position = keyed(seed)
    in_order = sorted(rows)
    chance = random.Random(seed)
    told = 0
    with ev.open(path) as db:
        table = db.table("t")
        for read in (
            lambda: table.get(key),
            lambda: table.get_many([in_order[0], key]),
            lambda: table.get_many(in_order),
            lambda: table.version(key),
            lambda: table.test_and_set(key, {"id": key, "op": 7}, expected=None),
            lambda: table.put({"id": key, "op": 7}),
            lambda: table.delete([key]),
            lambda: list(table.scan(key, in_order[-1])),
            lambda: list(db.store.scan("t", at={0: position})),
        ):
            with pytest.raises(Damaged, match="table t, region 0"):
                pytest.fail(f"it gave {read()}")
        assert list(table.scan()) == [rows[k] for k in in_order], "rows say everything"
        for _ in range(40):
            one, other = sorted(chance.sample(in_order, 2))
            try:
                assert table.get(one) == rows[one]
                assert list(table.scan(one, other)) == [
                    rows[k] for k in in_order if one <= k < other
                ]
            except Damaged:
                told += 1
    assert told, "a range that it is in"


def test_every_single_changed_byte_changes_the_checksum() -> None:
    """Whatever the sum was: the change of the product exceeds what the shift drops."""
    unseen = [
        (byte, place)
        for place in range(8)
        for byte in range(-255, 256)
        if byte and not 1 << 32 <= _product(byte << 8 * place) <= MASK - (1 << 32)
    ]
    assert unseen == []


def _product(difference: int) -> int:
    golden = 0x9E3779B97F4A7C15
    assert fold_one(1) == golden >> 32
    return difference * golden & MASK


def test_a_missing_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase, match=r"does not exist; create a database with"):
        ev.open(tmp_path / "nothing")


def test_an_empty_directory_is_no_database_until_created(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase, match="create a database"):
        ev.open(tmp_path)
    with ev.open(tmp_path, create=True) as db:
        assert db.tables() == []


def test_a_directory_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(NotADatabase, match="check the path"):
        ev.open(tmp_path)
    with pytest.raises(NotADatabase, match=r"thesis\.tex.*new or empty directory"):
        ev.open(tmp_path, create=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


@pytest.mark.parametrize("create", [False, True])
def test_a_file_in_place_of_the_directory_is_no_database(tmp_path: Path, create: bool) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADatabase, match="file"):
        ev.open(tmp_path / "file", create=create)
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.parametrize("create", [False, True])
def test_a_newer_format_asks_for_a_newer_everview(path: str, create: bool) -> None:
    Path(path, "FORMAT").write_text("everview 99\n")
    with pytest.raises(FormatMismatch, match=r"format 99.*upgrade everview"):
        ev.open(path, create=create)


def test_an_older_format_asks_for_the_everview_that_wrote_it(path: str) -> None:
    Path(path, "FORMAT").write_text("everview 0\n")
    with pytest.raises(FormatMismatch, match=r"format 0.*that wrote it"):
        ev.open(path)


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff\x00\x80", b"everview", b"everview one", b"x" * 999]
)
def test_a_format_of_garbage_is_no_database(path: str, garbage: bytes) -> None:
    Path(path, "FORMAT").write_bytes(garbage)
    with pytest.raises(NotADatabase, match="FORMAT"):
        ev.open(path)


def test_a_format_that_is_a_directory_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").mkdir()
    with pytest.raises(NotADatabase, match="FORMAT"):
        ev.open(tmp_path)


def test_a_format_being_changed_is_a_typed_error(path: str) -> None:
    with open(Path(path, "FORMAT"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DatabaseError, match="try again"):
            ev.open(path)


@pytest.mark.parametrize("file", ["catalog/data.mdb", "tables/000001/0/data.mdb"])
def test_a_data_file_of_garbage_is_damage(path: str, file: str) -> None:
    Path(path, file).write_bytes(random.Random(1).randbytes(16_384))
    with pytest.raises(Damaged, match=os.path.dirname(file)):
        ev.open(path).table("t").to_arrow()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_region_whose_files_are_gone_is_damage_and_not_an_empty_table(
    path: str, readonly: bool
) -> None:
    with ev.open(path) as db:
        db.table("t").put([{"id": key, "op": 1, "text": "x"} for key in range(100)])
    shutil.rmtree(Path(path, "tables", "000001", "2"))
    with pytest.raises(Damaged, match="000001/2"):
        ev.Database(EmbeddedStore(path, readonly=readonly)).table("t").to_arrow()


def test_files_that_go_while_they_are_opened_are_damage(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = opening.prepare_files

    def gone(path: str, file: DataFile, create: bool) -> None:
        prepare(path, file, create)
        if path.endswith("000001/2"):
            shutil.rmtree(path)

    monkeypatch.setattr(opening, "prepare_files", gone)
    with pytest.raises(Damaged, match="000001/2 is damaged or gone"):
        ev.open(path).table("t").to_arrow()


@pytest.mark.parametrize("at", ["makedirs", "fsync", "link", "unlink"])
def test_a_database_whose_creation_was_killed_can_be_created(
    server: Server, tmp_path: Path, at: str
) -> None:
    path = str(tmp_path / "new.ev")
    child = server.start("die_creating", path=path, at=at)
    assert child.ends_within(20)
    assert child.reports() == []
    with ev.open(path, create=True) as db:
        assert db.tables() == []
        db.create_table("t", COLUMNS, "id").put({"id": 1})
        assert check(db.store).rows == {1: {"id": 1, "op": None, "text": None}}


def test_processes_that_create_one_database_at_once_all_get_it(
    server: Server, tmp_path: Path
) -> None:
    for attempt in range(10):
        path, go = str(tmp_path / f"{attempt}.ev"), tmp_path / f"go{attempt}"
        children = [server.start("create", path=path, go=str(go)) for _ in range(4)]
        go.touch()
        assert [child.result() for child in children] == [[{"tables": []}]] * 4


@pytest.mark.parametrize("regions", range(4))
def test_a_table_whose_creation_was_killed_can_be_created(
    server: Server, tmp_path: Path, regions: int
) -> None:
    path = str(tmp_path / "new.ev")
    ev.open(path, create=True).close()
    child = server.start("die_creating_table", path=path, regions=regions)
    assert child.ends_within(20)
    assert child.reports() == []
    with ev.open(path) as db:
        assert db.tables() == []
        db.create_table("t", COLUMNS, "id").put({"id": 1})
        assert list(check(db.store).rows) == [1]
