"""Reading tables with format("everview") on every engine."""

from __future__ import annotations

import datetime as dt
import json
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.session import SparkSession as RemoteSession
from pyspark.sql.datasource import EqualTo, IsNotNull, IsNull

from everview import Database
from everview.engines.engine import Engine
from everview.intake.documents import format_interval
from everview.spark.source import EverviewDataSource, SailDataSource
from tests.spark.samples import VALUES, as_text, table_of_all_types


def reader(engine: Engine, db: Database):
    return engine.session.read.format("everview").option("db", db.path)


def test_a_table_of_all_types_reads_as_it_is_stored(engine, db):
    table = table_of_all_types(db)
    read = reader(engine, db).load("all_types").toArrow()
    assert read.schema == table.schema.arrow
    assert as_text(read) == as_text(table.to_arrow())


def test_an_empty_table_reads_as_no_rows_with_its_schema(engine, db):
    table = table_of_all_types(db, count=0)
    read = reader(engine, db).option("table", "ALL_TYPES").load().toArrow()
    assert read.schema == table.schema.arrow
    assert read.num_rows == 0


def test_the_columns_option_reads_only_these_columns_in_this_order(engine, db):
    table = table_of_all_types(db)
    read = reader(engine, db).option("columns", "name, ID").load("all_types").toArrow()
    assert read.schema.names == ["name", "id"]
    assert as_text(read) == as_text(table.to_arrow(columns=["name", "id"]))


def test_a_schema_of_the_user_reads_only_its_columns(engine, db):
    table = table_of_all_types(db)
    asked = "moment TIMESTAMP, ID BIGINT, amount DECIMAL(12,2)"
    read = reader(engine, db).schema(asked).load("all_types").toArrow()
    assert read.schema.names == ["moment", "ID", "amount"]
    stored = table.to_arrow(columns=["moment", "id", "amount"]).rename_columns(read.schema.names)
    assert as_text(read) == as_text(stored)


def test_columns_with_commas_in_their_names_can_be_asked_for(engine, db):
    db.create_table("odd", {"id": "INT", "a, b": "INT"}, key="id").put([{"id": 1, "a, b": 2}])
    answer = engine.select(db.path, "SELECT `a, b` FROM odd", {"odd": ["a, b"]})
    assert answer.to_pylist() == [{"a, b": 2}]


def test_a_query_over_some_columns_equals_one_over_all(engine, db):
    table_of_all_types(db)
    query = "SELECT day, count(*) AS n, max(name) AS last FROM all_types GROUP BY day"
    pruned = engine.select(db.path, query, {"all_types": ["day", "name"]})
    assert as_text(pruned) == as_text(engine.select(db.path, query, {"all_types": None}))
    assert pruned.schema.names == ["day", "n", "last"]


def test_a_snapshot_reads_the_same_after_later_writes(engine, db):
    table = table_of_all_types(db)
    then = as_text(table.to_arrow())
    with table.snapshot() as snapshot:
        at = json.dumps(dict(snapshot.positions))
        frame = reader(engine, db).option("snapshot", at).load("all_types")
        table.put([{"id": i, "name": "later"} for i in range(30, 90)])
        table.delete(list(range(10)))
        assert as_text(frame.toArrow()) == then
        assert as_text(frame.toArrow()) == then
    assert as_text(reader(engine, db).load("all_types").toArrow()) == as_text(table.to_arrow())


def test_changes_can_be_read_as_a_table_that_ends(engine, db):
    table = db.create_table("pairs", {"a": "INT", "b": "STRING", "n": "INT"}, key=["b", "a"])
    table.put([{"a": 1, "b": "x", "n": 1}, {"a": 2, "b": "x", "n": 2}])
    table.put([{"a": 1, "b": "x", "n": None}])
    table.delete([("x", 2)])
    read = reader(engine, db).option("changes", "true").option("columns", "n").load("pairs")
    changes = read.toArrow().to_pylist()
    assert {name for change in changes for name in change} == {
        "key", "op", "before", "after", "region", "sequence", "time",
    }  # fmt: skip
    told = {
        (c["key"]["b"], c["key"]["a"], c["op"], str(c["before"]), str(c["after"])) for c in changes
    }
    assert told == {
        ("x", 1, "put", "None", "{'n': 1}"),
        ("x", 2, "put", "None", "{'n': 2}"),
        ("x", 1, "put", "{'n': 1}", "{'n': None}"),
        ("x", 2, "delete", "{'n': 2}", "None"),
    }


def literal(value: object, column: str) -> str:
    if isinstance(value, float):
        return f"CAST('{value}' AS {'FLOAT' if column == 'single' else 'DOUBLE'})"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if column == "day":
        return f"DATE'{value}'"
    if isinstance(value, dt.timedelta):
        return f"INTERVAL '{format_interval(value)}' DAY TO SECOND"
    if column == "local":
        return f"TIMESTAMP_NTZ'{value}'"
    return f"TIMESTAMP'{value}'" if column == "moment" else repr(value)


def random_condition(chance: random.Random) -> str:
    column = chance.choice(["id", *VALUES])
    values = list(range(-1, 61)) if column == "id" else VALUES[column]
    one, other = (literal(chance.choice(values), column) for _ in range(2))
    forms = [f"{column} {op} {one}" for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")]
    forms += [f"{column} IS NULL", f"{column} IN ({one}, {other})", f"{column} IN ({one}, NULL)"]
    forms += [f"{column} BETWEEN {one} AND {other}"]
    if column == "name":
        forms += [f"name LIKE '{like}'" for like in ("a%", "%b", "%\N{SNOWMAN}%", "%", "_")]
    chosen = chance.choice(forms)
    return f"NOT ({chosen})" if chance.random() < 0.3 else chosen


def test_pushed_filters_let_through_what_the_engine_would(engine, db):
    table_of_all_types(db)
    chance = random.Random(20)
    conditions = [
        " AND ".join(random_condition(chance) for _ in range(chance.randint(1, 3)))
        for _ in range(25)
    ]
    frame = reader(engine, db).load("all_types")
    columns = [f"{condition} AS c{i}" for i, condition in enumerate(conditions)]
    held = engine.session.createDataFrame(frame.toArrow()).selectExpr("id", *columns).toArrow()
    for i, condition in enumerate(conditions):
        pushed = frame.where(condition).select("id").toArrow()
        assert as_text(pushed) == as_text(held.filter(pc.field(f"c{i}")).select(["id"])), condition


def test_filters_on_leading_key_columns_find_what_they_should(engine, db):
    table = db.create_table("places", {"a": "STRING", "b": "INT", "c": "DATE"}, key=["a", "b"])
    table.put([{"a": a, "b": b} for a in ("", "a", "a\0", "ab", "b") for b in range(-3, 4)])
    frame = reader(engine, db).load("places")
    held = engine.session.createDataFrame(frame.toArrow())
    for condition in (
        "a = 'a' AND b = 2",
        "a = 'a' AND b > 1",
        "a = 'a' AND b <= 2147483647",
        "a <= 'a'",
        "a LIKE 'a%' AND b < 0",
        "a > 'b' AND a < 'a'",
        "a IN ('a', 'b') AND b = 0",
        "b = 1",
    ):
        assert as_text(frame.where(condition).toArrow()) == as_text(
            held.where(condition).toArrow()
        ), condition


def test_a_session_without_filter_pushdown_reads_all_the_same(spark, db):
    table_of_all_types(db)
    plain = spark.session.newSession()
    assert plain.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    frame = plain.read.format("everview").option("db", db.path).load("all_types")
    assert frame.where("id < 7").count() == 7


def test_spark_connect_reads_and_filters_the_same(spark, connect_port, db):
    table = table_of_all_types(db)
    remote = RemoteSession(connection=f"sc://127.0.0.1:{connect_port}")
    frame = remote.read.format("everview").option("db", db.path).load("all_types")
    assert as_text(frame.toArrow()) == as_text(table.to_arrow())
    assert frame.where("id >= 10 AND name = 'ab'").count() == sum(
        row["id"] >= 10 and row["name"] == "ab" for row in table.scan()
    )
    remote.stop()


@pytest.mark.parametrize(
    ("options", "table", "says"),
    [
        ({"db": ""}, "all_types", "option db is missing"),
        ({}, "", "option table is missing"),
        ({}, "nope", "no table nope"),
        ({"db": "/nowhere"}, "all_types", "/nowhere does not exist"),
        ({"columns": "id,nope"}, "all_types", "has no column nope"),
        ({"snapshot": "now"}, "all_types", "give positions as JSON"),
        ({"snapshot": '{"0": 1}'}, "all_types", "has regions"),
        ({"column": "id"}, "all_types", "has no option column"),
        ({"columns": " , "}, "all_types", "names no column"),
        ({"columns": "[id"}, "all_types", "names separated by commas, or a JSON array"),
        ({"changes": "yes"}, "all_types", "is true or false"),
        ({"consumer": "me"}, "all_types", "is an option of changes"),
        ({"consumer": "everview", "changes": "true"}, "all_types", "consumer of all views"),
        ({"changes": "true", "snapshot": "{}"}, "all_types", "give startingPosition"),
        ({"changes": "true", "maxRowsPerBatch": "0"}, "all_types", "from 1 on"),
    ],
)
def test_what_is_asked_wrongly_is_said_clearly(engine, db, options, table, says):
    table_of_all_types(db, count=1)
    with pytest.raises(PySparkException, match=says):
        reader(engine, db).options(**options).load(table or None).count()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("nope INT", "no column nope"),
        ("name INT", "is STRING, not INT"),
        ("id BIGINT, name STRING NOT NULL", "may be NULL"),
    ],
)
def test_a_schema_the_table_does_not_have_is_refused(engine, db, schema, says):
    table_of_all_types(db, count=1)
    with pytest.raises(PySparkException, match=says):
        reader(engine, db).schema(schema).load("all_types").count()


def test_who_wants_to_write_is_told_how(spark, db):
    db.create_table("numbers", {"id": "INT"}, "id")
    frame = spark.read(db.path, "numbers")
    writer = frame.write.format("everview").option("db", db.path).option("table", "numbers")
    with pytest.raises(PySparkException, match=r"only reads; everview.open.*put\(frame\)"):
        writer.mode("append").save()
    assert db.table("numbers").put(spark.session.sql("SELECT 7 AS id")).rows == 1
    assert db.table("numbers").get(7) == {"id": 7}


def test_a_partition_read_again_gives_the_rows_it_had_when_planned(db):
    table = table_of_all_types(db)
    source = EverviewDataSource({"db": db.path, "path": "all_types"})
    planned = source.reader(table.schema.arrow)
    partitions = planned.partitions()
    assert len(partitions) == table.schema.regions
    first = [as_text(pa.Table.from_batches(planned.read(one))) for one in partitions]
    table.put([{"id": i} for i in range(200)])
    again = [as_text(pa.Table.from_batches(planned.read(one))) for one in partitions]
    assert again == first


def test_a_read_that_was_planned_keeps_its_columns_and_rows(db):
    table = table_of_all_types(db)
    source = EverviewDataSource({"db": db.path, "path": "all_types"})
    planned = source.reader(table.schema.arrow)
    partitions = planned.partitions()
    first = [as_text(pa.Table.from_batches(planned.read(one))) for one in partitions]
    table.add_columns({"fresh": "STRING"})
    table.put([{"id": i, "fresh": "x"} for i in range(200)])
    again = [as_text(pa.Table.from_batches(planned.read(one))) for one in partitions]
    assert again == first


def test_filters_on_a_new_column_are_pushed_to_rows_of_all_versions(db):
    table = table_of_all_types(db)
    old = {row["id"] for row in table.scan(columns=["id"])}
    table.add_columns({"fresh": "STRING"})
    table.put([{"id": i, "fresh": "xy"[i % 2]} for i in (-7, -6, min(old))])
    source = EverviewDataSource({"db": db.path, "path": "all_types"})
    for pushed, wanted in (
        (EqualTo(("fresh",), "x"), {i for i in (-7, -6, min(old)) if i % 2 == 0}),
        (IsNull(("fresh",)), old - {min(old)}),
    ):
        planned = source.reader(table.schema.arrow)
        assert list(planned.pushFilters([pushed])) == []
        batches = [b for one in planned.partitions() for b in planned.read(one)]
        assert {i for batch in batches for i in batch.column("id").to_pylist()} == wanted


def test_a_pushed_filter_is_evaluated_where_the_rows_are(db):
    table = table_of_all_types(db)
    source = EverviewDataSource({"db": db.path, "path": "all_types"})
    planned = source.reader(table.schema.arrow)
    not_a_number = EqualTo(("real",), float("nan"))
    pushed = [EqualTo(("name",), "ab"), not_a_number, IsNotNull(("tiny",))]
    assert list(planned.pushFilters(pushed)) == [not_a_number]
    rows = [row for one in planned.partitions() for b in planned.read(one) for row in b.to_pylist()]
    assert sorted(row["id"] for row in rows) == [
        row["id"] for row in table.scan() if row["name"] == "ab" and row["tiny"] is not None
    ]


def test_filters_that_sail_pushes_are_left_to_sail(db):
    table = table_of_all_types(db, count=1)
    source = SailDataSource({"db": db.path, "path": "all_types"})
    pushed = [EqualTo(("id",), 1)]
    assert list(source.reader(table.schema.arrow).pushFilters(pushed)) == pushed


def test_a_view_reads_as_of_one_epoch(engine, db):
    table = db.create_table("orders", {"id": "INT", "who": "STRING", "n": "DECIMAL(9,2)"}, key="id")
    table.put([{"id": i, "who": f"p{i % 7}", "n": i} for i in range(100)])
    db.sql("CREATE MATERIALIZED VIEW Spend AS SELECT who, sum(n) AS total FROM orders GROUP BY who")
    db.engines.use(engine)
    db.maintain()
    read = reader(engine, db).load("spend")
    assert read.toArrow().schema == db.view("spend").schema
    assert as_text(read.toArrow()) == as_text(db.view("spend").to_arrow())
    assert reader(engine, db).option("columns", "TOTAL").load("spend").columns == ["total"]
    assert read.where("who = 'p3'").count() == 1
    table.delete(range(100))
    db.maintain()
    assert reader(engine, db).load("spend").count() == 0
    with pytest.raises(PySparkException, match="leave out the option snapshot"):
        reader(engine, db).option("snapshot", "{}").load("spend").count()
    with pytest.raises(PySparkException, match="no column nope"):
        reader(engine, db).option("columns", "nope").load("spend").count()


def test_put_takes_a_frame_of_spark_as_it_is(engine: Engine, db: Database) -> None:
    table = db.create_table(
        "copies", {"id": "BIGINT", "at": "TIMESTAMP", "price": "DECIMAL(9,2)", "n": "DOUBLE"}, "id"
    )
    frame = engine.session.sql(
        "SELECT id, timestamp'2020-01-01 12:00:00' AS at, CAST(id AS DECIMAL(9,2)) AS price, "
        "double('NaN') AS n FROM range(20000)"
    )
    assert table.put(frame).rows == 20_000
    assert table.put(frame).unchanged == 20_000
    row = table.get(7)
    assert row is not None
    assert (str(row["at"]), str(row["price"]), str(row["n"])) == (
        "2020-01-01 12:00:00+00:00",
        "7.00",
        "nan",
    )
