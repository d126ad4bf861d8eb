"""A view's changes for Spark: from a snapshot on they are the view, over restarts and kills."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import everview as ev
from everview.engines.engine import Engine
from everview.spark.source import EverviewDataSource

Rows = Counter[tuple[Any, ...]]


@pytest.fixture(params=["apart", "with a view that is alike"])
def db(tmp_path: Path, sail: Engine, request: pytest.FixtureRequest) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY, customer STRING, amount DECIMAL(9,2))")
        query = (
            "SELECT customer, sum(amount) AS total FROM orders WHERE amount > -{} GROUP BY customer"
        )
        if request.param != "apart":
            db.sql(f"CREATE MATERIALIZED VIEW other AS {query.format(5)}")
        db.sql(f"CREATE MATERIALIZED VIEW spend AS {query.format(1)}")
        order(db, 1, "ada", "9.90")
        assert (db.view("spend").family is None) == (request.param == "apart")
        yield db


def order(db: ev.Database, id_: int, customer: str | None, amount: str) -> None:
    db.table("orders").put({"id": id_, "customer": customer, "amount": amount})
    db.maintain()


def rows_of(db: ev.Database) -> Rows:
    return Counter(tuple(row.values()) for row in db.view("spend").scan())


def source(db: ev.Database, **options: str) -> EverviewDataSource:
    return EverviewDataSource({"db": db.path, "path": "spend", "changes": "true", **options})


def stream_reader(db: ev.Database, **options: str) -> Any:
    made = source(db, **options)
    return made.streamReader(made.shape())


def apply(copy: Rows, reader: Any, start: Any, end: Any) -> None:
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            for row in batch.to_pylist():
                for image, weight in (("before", -1), ("after", 1)):
                    if row[image] is not None:
                        copy[tuple(row[image].values())] += weight
    assert min(copy.values(), default=0) >= 0
    copy += Counter()


def test_a_stream_that_restarts_anywhere_is_the_view_after_every_batch(db: ev.Database) -> None:
    """What is planned and not committed is planned again, by another process, with the same end."""
    rng, copy, reader = random.Random(5), Rows(), stream_reader(db, consumer="copy")
    start = reader.initialOffset()
    for i in range(12):
        order(db, rng.randrange(4), rng.choice(["ada", "bob", None]), f"{i}.50")
        end = reader.latestOffset(start, ReadAllAvailable())
        if rng.random() < 0.5:  # it dies after it wrote the end into its checkpoint
            reader.partitions(start, end)
            order(db, rng.randrange(4), "eve", f"{i}.75")
            reader = stream_reader(db, consumer="copy")
        seen = {db.view("spend").epoch: rows_of(db)}
        apply(copy, reader, start, end)
        if end["epoch"] in seen:
            assert copy == seen[end["epoch"]]
        reader.commit(end)
        start = end
    end = reader.latestOffset(start, ReadAllAvailable())
    apply(copy, reader, start, end)
    assert copy == rows_of(db)


def test_streams_of_spark_follow_a_view(db: ev.Database, spark: Engine, tmp_path: Path) -> None:
    for customer in ("bob", "ada"):
        order(db, 2, customer, "1.00")
        changes = spark.session.readStream.format("everview").option("db", db.path)
        query = (
            changes.option("changes", "true")
            .load("spend")
            .selectExpr("epoch", "op", "before.total AS was", "after.total AS total")
            .writeStream.format("json")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert query.exception() is None
    rows = spark.session.read.json(str(tmp_path / "out")).collect()
    assert sorted((row["op"], row["was"] or 0, row["total"] or 0) for row in rows) == [
        ("delete", 1.0, 0),
        ("insert", 0, 1.0),
        ("insert", 0, 9.9),
        ("update", 9.9, 10.9),
    ]


def test_a_read_has_the_log_or_a_snapshot(db: ev.Database, engine: Engine) -> None:
    read = engine.session.read.format("everview").option("db", db.path).option("changes", "true")
    (row,) = read.option("startingPosition", "snapshot").load("spend").collect()
    assert (row["op"], row["before"], row["after"]["customer"]) == ("insert", None, "ada")
    start = db.view("spend").register("test")
    order(db, 1, "bob", "9.90")
    rows = read.option("startingPosition", str(start)).load("spend").collect()
    assert sorted(row["op"] for row in rows) == ["delete", "insert"]
    assert read.option("startingPosition", "latest").load("spend").collect() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "total"}, "epoch by epoch, with all columns"),
        ({"maxRowsPerBatch": "5"}, "epoch by epoch"),
        ({"startingPosition": "then"}, "use snapshot, latest or the number of an epoch"),
        ({"startingPosition": "earliest"}, "nobody follows view spend"),
        ({"startingPosition": "0"}, "nobody follows view spend"),
    ],
)
def test_what_can_not_be_read_says_why(
    db: ev.Database, spark: Engine, options: dict[str, str], message: str
) -> None:
    read = spark.session.read.format("everview").option("db", db.path).option("changes", "true")
    with pytest.raises(PySparkException, match=message):
        read.options(**options).load("spend").collect()
