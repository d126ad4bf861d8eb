"""Streams of changes: nothing lost, nothing twice, over restarts and in bounded batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession as RemoteSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from everview import Database, Table
from everview.errors import LogError, LogTrimmed
from everview.spark.changes import share
from everview.spark.source import EverviewDataSource


@pytest.fixture
def table(db: Database) -> Table:
    return db.create_table("counts", {"k": "INT", "n": "BIGINT", "note": "STRING"}, key="k")


def stream_reader(db: Database, **options: str) -> Any:
    given = {"db": db.path, "path": "counts", "changes": "true", **options}
    source = EverviewDataSource(given)
    return source.streamReader(source.shape())


def run_stream(session: Any, db: Database, directory: Path, **options: str) -> Any:
    """Run what is there now through a stream into files, and return the query."""
    changes = session.readStream.format("everview").option("db", db.path)
    changes = changes.option("changes", "true").options(**options).load("counts")
    query = (
        changes.writeStream.format("json")
        .option("path", str(directory / "out"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


def streamed(session: Any, directory: Path) -> list[tuple[int, int, int, str]]:
    rows = session.read.json(str(directory / "out")).selectExpr("region", "sequence", "key.k", "op")
    return sorted(tuple(row) for row in rows.collect())


def logged(table: Table) -> list[tuple[int, int, int, str]]:
    changes = pa.Table.from_batches(table.changes()).to_pylist()
    return sorted(
        (c["region"], c["sequence"], (c["after"] or c["before"])["k"], c["op"]) for c in changes
    )


def write_at_random(table: Table, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 4)):
        keys = [chance.randrange(40) for _ in range(chance.randint(1, 20))]
        if chance.random() < 0.7:
            table.put([{"k": k, "n": chance.randrange(9)} for k in keys])
        else:
            table.delete(keys)


def test_a_stream_restarted_between_random_writes_loses_and_repeats_nothing(
    spark, db, table, tmp_path
):
    chance = random.Random(7)
    for limit in ("1000", "7", "1000"):
        write_at_random(table, chance)
        run_stream(spark.session, db, tmp_path, maxRowsPerBatch=limit)
        assert streamed(spark.session, tmp_path) == logged(table)


def test_a_batch_that_failed_is_repeated_with_the_same_changes(spark, db, table, tmp_path):
    tried: dict[int, list[Any]] = {}

    def work(batch: Any, number: int) -> None:
        seen = sorted(tuple(row) for row in batch.select("region", "sequence").collect())
        if tried.setdefault(number, seen) != seen:
            raise AssertionError(f"batch {number} is not what it was")
        if number == 1 and not failed:
            failed.append(number)
            raise RuntimeError("on purpose")

    def run() -> None:
        changes = spark.session.readStream.format("everview").option("db", db.path)
        changes = changes.option("changes", "true").option("maxRowsPerBatch", "6").load("counts")
        writer = changes.writeStream.foreachBatch(work).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)

    failed: list[int] = []
    table.put([{"k": k} for k in range(15)])
    with pytest.raises(PySparkException, match="on purpose"):
        run()
    table.put([{"k": k} for k in range(10, 20)])
    run()
    read = sorted(change for batch in tried.values() for change in batch)
    assert read == [change[:2] for change in logged(table)]


def test_batches_are_no_larger_than_asked_and_end_where_the_log_ended(spark, db, table, tmp_path):
    table.put([{"k": k} for k in range(50)])
    query = run_stream(spark.session, db, tmp_path, maxRowsPerBatch="12")
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(sizes) <= 12
    assert sum(sizes) == 50
    assert streamed(spark.session, tmp_path) == logged(table)


def test_a_consumer_keeps_what_the_stream_has_not_committed(spark, db, table, tmp_path):
    table.put([{"k": k} for k in range(20)])
    run_stream(spark.session, db, tmp_path, consumer="files")
    table.put([{"k": k} for k in range(20, 30)])
    everything = logged(table)
    table.trim()
    run_stream(spark.session, db, tmp_path, consumer="files")
    assert streamed(spark.session, tmp_path) == everything


def test_a_stream_runs_over_spark_connect(spark, connect_port, db, table, tmp_path):
    table.put([{"k": k} for k in range(10)])
    remote = RemoteSession(connection=f"sc://127.0.0.1:{connect_port}")
    run_stream(remote, db, tmp_path)
    assert streamed(spark.session, tmp_path) == logged(table)
    remote.stop()


def test_a_stream_of_a_table_without_changes_is_refused(spark, db, table):
    table.put([{"k": 1}])
    rows = spark.session.readStream.format("everview").option("db", db.path).load("counts")
    query = rows.writeStream.format("noop").start()
    with pytest.raises(PySparkException, match="can be streamed only as changes"):
        query.awaitTermination(60)


def test_a_stream_starts_where_it_is_told(db, table):
    table.put([{"k": k} for k in range(20)])
    last = {str(region): log.last for region, log in table.log().items()}
    assert stream_reader(db).initialOffset() == dict.fromkeys(last, 0)
    assert stream_reader(db, startingPosition="latest").initialOffset() == last
    told = stream_reader(db, startingPosition='{"0": 1, "1": 2, "2": 0, "3": 1}')
    assert told.initialOffset() == {"0": 1, "1": 2, "2": 0, "3": 1}


def test_every_kind_of_limit_is_respected(db, table):
    table.put([{"k": k} for k in range(20)])
    reader = stream_reader(db, maxRowsPerBatch="5")
    start = reader.initialOffset()
    everything = reader.reportLatestOffset()
    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert reader.latestOffset(start, ReadAllAvailable()) == everything
    assert sum(reader.latestOffset(start, ReadMaxRows(5)).values()) == 5
    assert reader.latestOffset(start, ReadMinRows(21)) == start
    assert reader.latestOffset(start, ReadMinRows(20)) == everything


def test_available_now_reads_nothing_written_later(db, table):
    table.put([{"k": k} for k in range(20)])
    reader = stream_reader(db)
    reader.prepareForTriggerAvailableNow()
    end = reader.reportLatestOffset()
    table.put([{"k": k} for k in range(20)])
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == end


def test_a_slice_that_was_trimmed_is_an_error_and_no_gap(db, table):
    table.put([{"k": k} for k in range(20)])
    reader = stream_reader(db)
    slices = reader.partitions(reader.initialOffset(), reader.reportLatestOffset())
    table.trim()
    with pytest.raises(LogTrimmed):
        list(reader.read(slices[0]))


def test_a_stream_that_has_begun_goes_on_with_the_columns_it_had(db, table):
    table.put([{"k": k, "n": 1} for k in range(20)])
    source = EverviewDataSource({"db": db.path, "path": "counts", "changes": "true"})
    shape = source.shape()
    reader = source.streamReader(shape)
    start = reader.initialOffset()
    table.add_columns({"more": "STRING"})
    table.put([{"k": k, "n": 2, "more": "x"} for k in range(10, 30)])
    end = reader.reportLatestOffset()
    for one in (reader, source.streamReader(shape), source.reader(shape)):
        slices = reader.partitions(start, end)
        found = pa.Table.from_batches(b for part in slices for b in one.read(part))
        assert found.schema == shape
        numbers = [(c["before"] or {}).get("n", 0) + c["after"]["n"] for c in found.to_pylist()]
        assert sorted(numbers) == [1] * 20 + [2] * 10 + [3] * 10
    fresh = stream_reader(db)
    found = pa.Table.from_batches(b for part in slices for b in fresh.read(part))
    more = [c["after"]["more"] for c in found.to_pylist()]
    assert sorted(map(str, more)) == ["None"] * 20 + ["x"] * 20


def test_commits_move_the_consumer_and_a_stream_without_one_leaves_none(db, table):
    table.put([{"k": k} for k in range(20)])
    stream_reader(db).latestOffset(stream_reader(db).initialOffset(), ReadAllAvailable())
    assert not any(region.consumers for region in table.status())
    reader = stream_reader(db, consumer="files")
    reader.initialOffset()
    assert all(region.consumers == {"files": 0} for region in table.status())
    reader.commit(reader.reportLatestOffset())
    assert all(region.consumers == {"files": region.log.last} for region in table.status())


def test_a_checkpoint_of_a_dropped_table_is_refused(db, table):
    table.put([{"k": k} for k in range(20)])
    end = stream_reader(db).reportLatestOffset()
    db.drop_table("counts")
    db.create_table("counts", {"k": "INT", "n": "BIGINT"}, key="k").put([{"k": 1}])
    with pytest.raises(LogError, match="new checkpointLocation"):
        stream_reader(db).latestOffset(end, ReadAllAvailable())


@given(
    rows=st.integers(1, 200),
    backlog=st.dictionaries(st.integers(0, 9), st.integers(0, 100), min_size=1),
)
def test_rows_are_shared_fairly_and_none_is_left_over(rows, backlog):
    parts = share(rows, backlog)
    assert parts.keys() == backlog.keys()
    assert sum(parts.values()) == min(rows, sum(backlog.values()))
    kept_waiting = [parts[r] for r in parts if parts[r] < backlog[r]]
    assert all(part <= backlog[r] for r, part in parts.items())
    assert max(parts.values()) <= min(kept_waiting, default=rows) + 1
