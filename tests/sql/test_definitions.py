"""CREATE, ALTER, DROP, DESCRIBE and SHOW, none of which needs an engine."""

from __future__ import annotations

from decimal import Decimal

import pytest

from everview.errors import (
    AppendOnly,
    InvalidSchema,
    InvalidSql,
    TableExists,
    TableNotFound,
    UnsupportedSql,
    ViewNotFound,
)
from everview.schema import sql_name
from everview.sql import split

TYPES = {
    "BOOLEAN": "BOOLEAN",
    "BYTE": "TINYINT",
    "TINYINT": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DECIMAL": "DECIMAL(10,0)",
    "DECIMAL(12, 2)": "DECIMAL(12,2)",
    "NUMERIC(38)": "DECIMAL(38,0)",
    "STRING": "STRING",
    "VARCHAR(10)": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
    "INTERVAL DAY TO SECOND": "INTERVAL DAY TO SECOND",
    "interval hour to minute": "INTERVAL DAY TO SECOND",
    "array<long>": "ARRAY<BIGINT>",
    "MAP<STRING, ARRAY<VARCHAR(3)>>": "MAP<STRING, ARRAY<STRING>>",
    "STRUCT<a INT NOT NULL COMMENT 'x, y', `odd name`: DECIMAL(12, 2)>": (
        "STRUCT<a: INT, `odd name`: DECIMAL(12,2)>"
    ),
}


def test_every_spark_type_is_understood(db):
    columns = ", ".join(f"c{i} {name}" for i, name in enumerate(TYPES))
    db.sql(f"CREATE TABLE t (id INT, {columns}, PRIMARY KEY (id))")
    found = [sql_name(column.type) for column in db.table("t").schema.columns[1:]]
    assert found == list(TYPES.values())


@pytest.mark.parametrize(
    "definition",
    [
        "CREATE TABLE t (a INT NOT NULL, b STRING, `c d` DATE NOT NULL, PRIMARY KEY (b, a)) "
        "WITH (regions = 3)",
        "create table T (a int, b string, `c d` date not null, constraint pk primary key (B, A)) "
        "tblproperties ('regions' = '3')",
    ],
)
def test_keys_options_and_not_null(db, definition):
    assert db.sql(definition).message in ("table t created", "table T created")
    schema = db.table("t").schema
    assert schema.key == ("b", "a")
    assert schema.regions == 3
    assert [column.nullable for column in schema.columns] == [False, False, False]


@pytest.mark.parametrize(
    "options", ["WITH (append_only = true)", "TBLPROPERTIES ('append_only' = 'TRUE')"]
)
def test_an_append_only_table_says_so_and_refuses_changes(db, options):
    db.sql(f"CREATE TABLE t (id INT PRIMARY KEY, name STRING) {options}")
    db.sql("CREATE TABLE u (id INT PRIMARY KEY) WITH (append_only = false)")
    assert [table.append_only for table in db.status()] == [True, False]
    assert "append-only" in repr(db.sql("DESCRIBE t"))
    assert "append-only" not in repr(db.sql("DESCRIBE u"))
    db.sql("INSERT INTO t VALUES (1, 'ada'), (2, 'bob')")
    with pytest.raises(AppendOnly, match="table t is append-only: its row with id = 2 can't be ch"):
        db.table("t").put([{"id": 2, "name": "cy"}])
    with pytest.raises(AppendOnly, match="id = 1 can't be deleted"):
        db.table("t").delete([1])
    assert db.table("t").get(2) == {"id": 2, "name": "bob"}


def test_a_column_may_be_the_primary_key_itself(db):
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING)")
    assert db.table("t").schema.key == ("id",)
    assert db.table("t").schema.column("name").nullable


def test_if_not_exists_and_if_exists(db):
    create = "CREATE TABLE {} t (id INT PRIMARY KEY)"
    db.sql(create.format(""))
    assert db.sql(create.format("IF NOT EXISTS")).message == "table t exists already"
    with pytest.raises(TableExists):
        db.sql(create.format(""))
    assert db.sql("DROP TABLE T").message == "table T dropped"
    assert db.tables() == []
    assert db.sql("DROP TABLE IF EXISTS t").message == "there is no table t"
    with pytest.raises(TableNotFound, match="there are no tables yet"):
        db.sql("DROP TABLE t")


def test_describe_shows_columns_in_order_with_their_place_in_the_key(db):
    db.sql("CREATE TABLE t (a INT, b DECIMAL(5,1), c STRING, PRIMARY KEY (c, a))")
    assert db.sql("DESC TABLE T").to_pylist() == [
        {"column": "a", "type": "INT", "nullable": False, "key": 2},
        {"column": "b", "type": "DECIMAL(5,1)", "nullable": True, "key": None},
        {"column": "c", "type": "STRING", "nullable": False, "key": 1},
    ]


def test_show_tables_may_be_narrowed(db):
    for name in ("orders", "Order_items", "customers"):
        db.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY)")
    assert db.sql("SHOW TABLES").count == 3
    found = db.sql("SHOW TABLES LIKE 'order*'").to_arrow().column("table").to_pylist()
    assert sorted(found) == ["Order_items", "orders"]


@pytest.mark.parametrize(
    "added",
    [
        "ADD COLUMN (c DECIMAL(9,2), `d e` ARRAY<INT>)",
        "ADD COLUMNS (c DECIMAL(9,2), `d e` ARRAY<INT>)",
        "add columns c decimal(9,2), `d e` array<int>",
        "ADD COLUMN c DECIMAL(9,2) NULL; ALTER TABLE T ADD COLUMN `d e` ARRAY<INT>",
    ],
)
def test_columns_are_added_at_the_end_and_null_in_rows_that_are_there(db, added):
    db.sql("CREATE TABLE t (a INT, b STRING NOT NULL, PRIMARY KEY (a))")
    db.sql("INSERT INTO t VALUES (1, 'x')")
    for statement in split(f"ALTER TABLE t {added}"):
        assert "NULL in existing rows" in str(db.sql(statement).message)
    assert db.sql("DESCRIBE t").to_arrow().to_pylist()[2:] == [
        {"column": "c", "type": "DECIMAL(9,2)", "nullable": True, "key": None},
        {"column": "d e", "type": "ARRAY<INT>", "nullable": True, "key": None},
    ]
    with pytest.raises(InvalidSql, match=r"row 1 has 2 values, for 4 to fill \(a, b, c, d e\)"):
        db.sql("INSERT INTO t VALUES (2, 'y')")
    db.sql("INSERT INTO t (a, b) VALUES (2, 'y')")
    db.sql("INSERT INTO t VALUES (3, 'z', 1.5, array(1))")
    assert [tuple(row.values()) for row in db.table("t").scan()] == [
        (1, "x", None, None),
        (2, "y", None, None),
        (3, "z", Decimal("1.50"), [1]),
    ]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("ADD COLUMN A INT", InvalidSchema, "has a column A already; it has a, b"),
        ("ADD COLUMNS (c INT, C INT)", InvalidSchema, "C appears twice"),
        ("ADD COLUMN c INT NOT NULL", InvalidSchema, "leave out NOT NULL"),
        ("ADD COLUMN c INT DEFAULT 3", UnsupportedSql, "DEFAULT 3 .* leave it out and UPDATE"),
        ("ADD COLUMN c INT COMMENT 'x'", UnsupportedSql, "COMMENT 'x' .* leave it out$"),
        ("ADD COLUMN c INT PRIMARY KEY", UnsupportedSql, "PRIMARY KEY .* leave it out$"),
        ("ADD COLUMN c INT FIRST", UnsupportedSql, "leave out FIRST and AFTER"),
        ("ADD COLUMNS (c INT AFTER a)", UnsupportedSql, "leave out FIRST and AFTER"),
        ("ADD COLUMN b.c INT", UnsupportedSql, "b.c INT can't be added .* write ALTER TABLE"),
        ("ADD COLUMN c", UnsupportedSql, "c can't be added .* types such as BIGINT"),
        ("ADD COLUMN c FOO", InvalidSql, "c FOO can't be added .* write ALTER TABLE"),
        ("ADD COLUMN c UUID", InvalidSchema, "UUID can't be stored"),
        ("ADD COLUMN IF NOT EXISTS c INT", InvalidSql, "can't be added .* write ALTER TABLE"),
        ("ADD COLUMNS (c INT) WITH (regions = 3)", InvalidSql, "can't be added"),
        ("ADD COLUMNS (c INT) AS SELECT 1", InvalidSql, "can't be added"),
        ("ADD COLUMNS ()", InvalidSql, "can't be added"),
        ("ADD COLUMN", InvalidSql, "nothing can't be added"),
        ("ADD PRIMARY KEY (b)", UnsupportedSql, "the only change to a table"),
        ("DROP COLUMN b", UnsupportedSql, "the only change to a table .* INSERT INTO it SELECT"),
        ("RENAME TO u", UnsupportedSql, "the only change to a table"),
        ("", UnsupportedSql, "the only change to a table"),
    ],
)
def test_other_changes_are_refused_with_what_to_write(db, change, error, message):
    db.sql("CREATE TABLE t (a INT, b STRING, PRIMARY KEY (a))")
    before = db.table("t").schema
    with pytest.raises(error, match=message):
        db.sql(f"ALTER TABLE t {change}")
    assert db.table("t").schema == before


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("ALTER TABLE t ADD COLUMN c INT", TableNotFound, "there is no table t"),
        ("ALTER TABLE d.t ADD COLUMN c INT", UnsupportedSql, "the only change to a table"),
        ("ALTER DATABASE d", UnsupportedSql, "the only change to a table"),
        ("CREATE TABLE t (a INT)", InvalidSchema, "no primary key; add PRIMARY KEY"),
        ("CREATE TABLE t (a FOO PRIMARY KEY)", InvalidSql, "column 19: .*types such as BIGINT"),
        ("CREATE TABLE t (a UUID PRIMARY KEY)", InvalidSchema, "UUID can't be stored"),
        ("CREATE TABLE t (a ARRAY<INT> PRIMARY KEY)", InvalidSchema, "ARRAY<INT> can't be part"),
        ("CREATE TABLE t (a INT DEFAULT 1 PRIMARY KEY)", UnsupportedSql, "DEFAULT is not"),
        ("CREATE TABLE t (a INT, UNIQUE (a))", UnsupportedSql, "has columns and a PRIMARY KEY"),
        ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", InvalidSql, "more than one PRIM"),
        ("CREATE TABLE t (a INT PRIMARY KEY) USING delta", UnsupportedSql, "USING DELTA is not"),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITH (x = 1)", InvalidSql, "the options are regions"),
        (
            "CREATE TABLE t (a INT PRIMARY KEY) WITH (append_only = 2)",
            InvalidSql,
            "append_only = t",
        ),
        ("CREATE TABLE t (a INT PRIMARY KEY) WITH (regions = -1)", InvalidSql, "regions = -1: the"),
        ("CREATE TABLE t (a INT PRIMARY KEY) nonsense", InvalidSql, "can't be read; write CREATE"),
        ("CREATE TABLE t AS SELECT 1", UnsupportedSql, "then INSERT INTO name SELECT"),
        ("CREATE TABLE d.t (a INT PRIMARY KEY)", UnsupportedSql, "without a database and a dot"),
        ("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY)", UnsupportedSql, "DROP TABLE IF EXISTS"),
        ("CREATE VIEW v SELECT 1", InvalidSql, r"MATERIALIZED VIEW \[IF NOT EXISTS\] name "),
        ("CREATE FUNCTION f AS 'x'", UnsupportedSql, "only CREATE TABLE"),
        ("DROP VIEW v", ViewNotFound, "no view v"),
        ("DROP TABLE a, b", UnsupportedSql, "takes one table"),
        ("DESCRIBE EXTENDED t", UnsupportedSql, "DESCRIBE has no options"),
        ("DESCRIBE SELECT 1", UnsupportedSql, "takes the name of a table"),
        ("SHOW COLUMNS", UnsupportedSql, "SHOW takes TABLES"),
    ],
)
def test_other_definitions_are_refused_with_what_to_write(db, statement, error, message):
    with pytest.raises(error, match=message):
        db.sql(statement)
    assert db.tables() == []
