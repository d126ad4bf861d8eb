"""Recorded histories as files: they survive a kill, and what is malformed is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from everview.check import Commit, Definition, History, Level, Recorder, check_history
from everview.errors import InvalidHistory
from everview.schema import TableSchema

WRITE = '{"wrote": "t", "key": 1, "row": {"k": 1}, "region": 0, "sequence": 1}\n'
READ = '{"read": "v", "epoch": 1, "rows": [{"k": 1}]}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_what_is_recorded_is_read_back(path):
    with Recorder(path) as recorder:
        recorder.wrote(
            "t", ("a", 1), {"k": "a", "n": 1}, region=0, sequence=1, began=recorder.now()
        )
        recorder.wrote("t", ("a", 1), None, region=0, sequence=2)
        recorder.committed(7, {"t": {0: 2}})
        recorder.read("v", 7, [{"n": 0}])
        recorder.read("v", 7, [], key="a", reader="ann")
    history = History.load(path)
    put, delete = history.writes
    assert (put.key, put.row, delete.row) == (("a", 1), {"k": "a", "n": 1}, None)
    assert put.began is not None
    assert put.ended is not None
    assert delete.ended is not None
    assert put.began <= put.ended <= delete.ended
    assert history.commits == [Commit(7, {"t": {0: 2}})]
    whole, record = history.reads
    assert (whole.epoch, whole.key, whole.rows) == (7, None, ({"n": 0},))
    assert (record.key, record.rows, record.reader) == (("a",), (), "ann")


def test_threads_share_a_recorder(path):
    with Recorder(path) as recorder:

        def record(region: int) -> None:
            for sequence in range(1, 101):
                recorder.wrote("t", [region], {"k": region}, region, sequence)

        threads = [threading.Thread(target=record, args=(region,)) for region in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = History.load(path)
    history.validate()
    assert len(history.writes) == 400


def test_a_recorder_that_is_killed_loses_nothing_it_recorded(path):
    code = (
        "import sys; from everview.check import Recorder; recorder = Recorder(sys.argv[1])\n"
        "for n in range(1, 10**9): recorder.wrote('t', n, {'k': n}, 0, n); print(n, flush=True)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(200):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line]
    history = History.load(path)
    history.validate()
    assert len(history.writes) >= max(said, default=200)


@pytest.mark.parametrize("torn", ['{"wrote": "t", "ke', "{", "x" * 200_000])
def test_a_last_line_that_was_not_finished_is_left_out_and_cut_off(path, torn):
    path.write_text(WRITE + torn)
    assert len(History.load(path).writes) == 1
    with Recorder(path) as recorder:
        recorder.wrote("t", 2, {"k": 2}, 0, 2)
    history = History.load(path)
    history.validate()
    assert [write.key for write in history.writes] == [(1,), (2,)]


def test_several_files_are_one_history(tmp_path):
    (tmp_path / "a").write_text(WRITE)
    (tmp_path / "b").write_text(READ)
    history = History.load(tmp_path / "a", tmp_path / "b")
    assert (len(history.writes), len(history.reads)) == (1, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{nope}", "it is not JSON"),
        ("[1]", "it is no JSON object"),
        ('{"a": 1}', "it is no write, read or commit"),
        ('{"wrote": "t", "key": 1, "row": {}, "region": 0}', "'sequence' is missing"),
        (WRITE.replace('"region": 0', '"region": "0"').strip(), "region is '0', not a whole"),
        (WRITE.replace('"key": 1', '"key": [{}]').strip(), "is no key"),
        (WRITE.replace('{"k": 1}', "[1]").strip(), "is no row"),
        (WRITE.replace('{"k": 1}', '{"k": [1]}').strip(), "column k is"),
        ('{"read": "v", "rows": {}}', "rows is {}, not a list of rows"),
        ('{"read": "v", "rows": [], "epoch": true}', "epoch is True"),
        ('{"read": "v", "rows": [], "began": "now"}', "began is 'now', not a time"),
        ('{"committed": 1, "positions": {"t": {"x": 1}}}', "invalid literal"),
        ('{"committed": 1, "positions": {"t": 5}}', "it is no write|not iterable"),
    ],
)
def test_a_malformed_line_is_named(path, line, message):
    path.write_text(f"{WRITE}\n{line}\n{READ}")
    with pytest.raises(InvalidHistory, match=message) as raised:
        History.load(path)
    assert f"{path}:3: " in str(raised.value)


def test_a_file_that_is_not_there_is_named(path):
    with pytest.raises(InvalidHistory, match="history can't be read: No such file"):
        History.load(path)


def test_decimals_dates_times_and_bytes_are_compared_as_the_table_has_them(path):
    schema = TableSchema.of(
        "t",
        {"k": "INT", "d": "DECIMAL(9,2)", "m": "TIMESTAMP", "b": "BINARY", "f": "DOUBLE"},
        "k",
    )
    moment = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
    row = {"k": 1, "d": Decimal("1.50"), "m": moment, "b": b"\x00\xff", "f": float("nan")}
    with Recorder(path) as recorder:
        recorder.committed(0, {"t": {0: 0}})
        recorder.wrote("t", 1, row, 0, 1)
        recorder.committed(1, {"t": {0: 1}})
        recorder.read("v", 1, [row], key=1)
        recorder.read("v", 1, [row | {"d": Decimal("1.5")}])
    view = Definition("v", "SELECT * FROM t WHERE d > 1.4 AND m < '2024-03-01'", ("k",))
    (verdict,) = check_history(History.load(path), [view], {"t": schema})
    assert verdict.level is Level.COMPLETE
    with Recorder(path) as recorder:
        recorder.read("v", 1, [row | {"b": b"\x00"}])
    (verdict,) = check_history(History.load(path), [view], {"t": schema})
    assert verdict.holds(Level.STRONG) is False
