"""What SQL can't reach: no program, no file, nothing of Spark's, through no door of an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

import everview as ev
from everview.catalog import Definition
from everview.cli.shell import Session
from everview.engines.engine import Engine
from everview.errors import (
    EverviewError,
    InUse,
    InvalidSchema,
    InvalidSql,
    OutOfReach,
    ReadOnly,
    SqlError,
    UnsupportedSql,
)
from everview.plan.expressions import Lit, Written
from everview.plan.nodes import Constant, Filter, Node, Project
from everview.reach import check_plan, check_query
from everview.reach.asking import ask
from everview.reach.functions import FUNCTIONS
from tests.records import change_record

from .hostile import COMMANDS, EXPRESSIONS, OF_EXPRESSIONS, OF_QUERIES, OF_VIEWS, QUERIES, RELATIONS

READS = "(SELECT max(value) FROM text.`{file}`)"
BRIEFLY = 4
REFUSALS = (OutOfReach, InvalidSql, UnsupportedSql)


class Shop:
    """A database, with a file that nobody is to read and a path at which nothing is to appear."""

    def __init__(self, path: Path, engine: Engine) -> None:
        self.db = ev.open(path / "shop.ev", create=True)
        self.db.engines.use(engine)
        self.file, self.made = path / "secret", path / "made"
        self.file.write_text("secret\n")
        os.utime(self.file, (0, self.file.stat().st_mtime))  # so that a read would change it
        self.db.sql("CREATE TABLE t (id INT PRIMARY KEY, s STRING)")
        self.db.table("t").put([{"id": 1, "s": "a"}, {"id": 2, "s": "b"}])
        self.db.sql("CREATE MATERIALIZED VIEW good AS SELECT id, upper(s) AS u FROM t")
        self.db.maintain()

    def filled(self, text: str) -> str:
        return text.replace("{file}", str(self.file)).replace("{made}", str(self.made))

    def answers(self, statement: str) -> SqlError | str | None:
        """The refusal of a statement; what else came of it as text."""
        try:
            return f"it ran: {self.db.sql(self.filled(statement))}"[:200]
        except REFUSALS as error:
            return error
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]

    def is_untouched(self) -> bool:
        same = {row["id"]: row["s"] for row in self.db.table("t").scan()} == {1: "a", 2: "b"}
        same = same and self.db.views() == ["good"] and self.db.view("good").error is None
        return same and self.file.stat().st_atime == 0 and not self.made.exists()


@pytest.fixture(scope="module", params=["spark", "sail"])
def closed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A shop that all refusals leave as it is."""
    shop = Shop(tmp_path_factory.mktemp("reach"), request.getfixturevalue(request.param))
    yield shop
    shop.db.close()


@pytest.fixture
def shop(engine: Engine, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path, engine)
    yield shop
    shop.db.close()


def escaped(shop: Shop, statements: list[str], expected: tuple[type[SqlError], ...]) -> list[str]:
    """What is not refused. Spark plans every view, so with Sail a few views are enough."""
    if shop.db.engine.name == "sail":
        views = [one for one in statements if "MATERIALIZED" in one]
        statements = [one for one in statements if one not in views[BRIEFLY:]]
    answers = {statement: shop.answers(statement) for statement in statements}
    return [
        f"{one}\n  -> {answer!r}"
        for one, answer in answers.items()
        if not isinstance(answer, expected)
    ]


DOORS = {**OF_QUERIES, **OF_VIEWS}


@pytest.mark.parametrize("door", DOORS)
def test_a_relation_is_a_table_or_view_of_the_database(closed: Shop, door: str) -> None:
    queries = [f"SELECT 1 AS one FROM {relation}" for relation in RELATIONS]
    statements = [DOORS[door].replace("{query}", query) for query in queries]
    assert escaped(closed, statements, (OutOfReach,)) == []
    assert closed.is_untouched()


@pytest.mark.parametrize("door", OF_EXPRESSIONS)
def test_an_expression_only_computes(closed: Shop, door: str) -> None:
    template = OF_EXPRESSIONS[door]
    statements = [template.replace("{expression}", one) for one in EXPRESSIONS]
    assert escaped(closed, statements, (OutOfReach,)) == []
    assert closed.is_untouched()


@pytest.mark.parametrize("door", DOORS)
def test_a_query_runs_no_program(closed: Shop, door: str) -> None:
    statements = [DOORS[door].replace("{query}", query) for query in QUERIES]
    assert escaped(closed, statements, REFUSALS) == []
    assert closed.is_untouched()


def test_commands_of_an_engine_are_none_of_ours(closed: Shop) -> None:
    assert escaped(closed, COMMANDS, REFUSALS) == []
    views = [DOORS[door].replace("{query}", one) for door in OF_VIEWS for one in COMMANDS]
    assert escaped(closed, views, REFUSALS) == []
    assert closed.is_untouched()


def test_the_shell_refuses_with_a_word_of_what_to_do(closed: Shop) -> None:
    session = Session(closed.db)
    for query in (QUERIES[0], f"SELECT * FROM {RELATIONS[0]}", f"SELECT {EXPRESSIONS[0]}"):
        with pytest.raises(OutOfReach, match=r"spark\.read\.format\('everview'\)"):
            session.take(closed.filled(query) + ";\n")
    assert closed.is_untouched()


def test_an_engine_itself_refuses_what_no_statement_has_checked(closed: Shop) -> None:
    session = closed.db.engine.session
    closed.db.engine.read(closed.db.path, "t").createOrReplaceTempView("t")
    queries = [*QUERIES, *COMMANDS, *(f"SELECT 1 FROM {relation}" for relation in RELATIONS)]
    queries += [f"SELECT {one} AS y FROM t" for one in EXPRESSIONS]
    for query in map(closed.filled, queries):
        with pytest.raises((*REFUSALS, AnalysisException)):
            ask(session, query, ["t"])
    session.catalog.dropTempView("t")
    assert closed.is_untouched()


def test_what_a_name_stands_for_in_spark_is_checked_too(spark: Engine) -> None:
    session = spark.session
    session.sql("CREATE TABLE loot USING csv AS SELECT 1 AS a")
    session.sql("CREATE VIEW stored AS SELECT 1 AS a")
    session.udf.register("numeric", lambda text: text)  # Spark's own come first
    try:
        session.range(1).createOrReplaceTempView("left_over")
        names = ("loot", "stored", "left_over")
        for query in (*(f"SELECT * FROM {name}" for name in names), "SELECT numeric('a')"):
            with pytest.raises(OutOfReach):
                ask(session, query, ["loot"])
    finally:
        session.catalog.dropTempView("left_over")
        session.sql("DROP TEMPORARY FUNCTION numeric")
        session.sql("DROP VIEW stored")
        session.sql("DROP TABLE loot")


@pytest.mark.parametrize("option", ["", "WITH (refresh = 'full')"])
def test_a_table_that_was_dropped_is_unknown_to_the_planner(
    spark: Engine, db: ev.Database, option: str
) -> None:
    db.sql("CREATE TABLE former (id INT PRIMARY KEY)")
    db.explain("CREATE MATERIALIZED VIEW v AS SELECT id FROM former")
    db.sql("DROP TABLE former")
    with pytest.raises(InvalidSql, match="there is no table or view `former`"):
        db.sql(f"CREATE MATERIALIZED VIEW v {option} AS SELECT id FROM former")


def called() -> ev.Observer:
    raise SystemExit("this is no class, and was called")


def test_of_what_a_definition_names_only_observers_are_called(db: ev.Database) -> None:
    with pytest.raises(InvalidSchema, match=r"is not an everview\.Observer"):
        db.create_table("x", {"id": "INT"}, "id", observers=[f"{__name__}:called"])


@pytest.mark.parametrize(
    ("name", "is_loaded"),
    [
        ("refresh", False),
        ("refresh", True),
        ("filter", True),
        ("project", False),
        ("constant", False),
    ],
)
def test_a_stored_view_that_reaches_out_is_stopped_and_others_go_on(
    shop: Shop, name: str, is_loaded: bool
) -> None:
    db = shop.db
    query = "SELECT id, s FROM t WHERE upper(s) <> 'X' UNION ALL SELECT 7, 'seven'"
    full = "WITH (refresh = 'full') " if name == "refresh" else ""
    db.sql(f"CREATE MATERIALIZED VIEW v {full}AS {query}")
    if is_loaded:
        db.maintain()
    hostile = shop.filled(
        "SELECT TRANSFORM(id, s) USING 'touch {made}' AS (id INT, s STRING) FROM t"
    )
    plan = planted(db.view("v").plan, name, shop.filled(hostile), shop.filled(READS))
    change_record(db, "v", plan_text=plan.text, definition=Definition(hostile))
    db.engine.programs._programs.clear()  # as in another process
    db.table("t").put({"id": 3, "s": "c"})
    report = db.maintain()
    assert "spark.read.format('everview')" in report.failed["v"]
    assert db.view("v").status == "stopped"
    if is_loaded:
        with pytest.raises(OutOfReach):
            db.verify("v")
    assert sorted(row["id"] for row in db.view("good").scan()) == [1, 2, 3]
    assert shop.file.stat().st_atime == 0
    assert not shop.made.exists()


def planted(node: Node, name: str, query: str, expression: str) -> Node:
    """A plan as an older version could have stored it."""
    node = node.with_inputs(lambda one: planted(one, name, query, expression))
    if name == "refresh" and node.kind == "refresh":
        return replace(node, query=query)  # type: ignore[call-arg]
    if name == "filter" and isinstance(node, Filter):
        return replace(node, condition=f"{expression} = 'a'")
    if name == "project" and isinstance(node, Project):
        return replace(node, expressions=(node.expressions[0], expression))
    if name == "constant" and isinstance(node, Constant):
        return replace(node, rows=(("7", expression),))
    return node


@pytest.mark.parametrize(
    "text",
    [
        "1), (2",
        "1L) AS rows(a, weight), text.`/etc/passwd` AS x(",
        "reflect('a', 'b')",
        "a /* ' */ + reflect('a', 'b')",
        "(SELECT 1)",
        "(FROM t)",
        "(TABLE t)",
        "(MAP a USING 'cat')",
        "'\\'' || reflect('a', 'b') || '\\''",
        "r'\\' || reflect('a', 'b')",
    ],
)
def test_a_text_of_a_plan_is_one_expression_that_computes(text: str) -> None:
    with pytest.raises(REFUSALS):
        check_plan(Filter((), Constant((), ()), Written(text)))
    with pytest.raises(REFUSALS):
        check_plan(Filter((), Constant((), ()), Lit(text, "BOOLEAN")))


def test_what_only_computes_is_not_refused() -> None:
    for query in [
        "SELECT reflect FROM (VALUES (1)) AS reflect(reflect)",
        "WITH reflect(a, b) AS (SELECT 1, 2) SELECT a FROM reflect",
        "SELECT 'reflect(1)' AS `reflect(2)`, \"text.`a`\" -- reflect(3)\n FROM t /* reflect(4) */",
        "SELECT stack(2, id, id) AS (a) FROM t",
        "SELECT max(IDENTIFIER('id')) FROM t",
        r"SELECT r'\', '\'', '''' FROM t",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "WITH a AS (SELECT 1 AS x), b AS (SELECT x FROM a) SELECT * FROM b",
        "SELECT /*+ BROADCAST(t) */ id FROM t",
    ]:
        assert len(check_query(query, ["T"])) == len(query)


def test_the_functions_are_those_of_spark_that_do_not_reach_out(spark: Engine) -> None:
    known = {row[0] for row in spark.session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    left_out = {name for name in known - FUNCTIONS if name[0].isalpha()}
    assert left_out == {
        *("reflect", "java_method", "try_reflect", "python_worker_logs"),
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
        *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
    }


def files(path: str) -> dict[str, tuple[int, bytes]]:
    """All files below a path, when they changed and what they hold; not LMDB's lists of readers."""
    found = (one for one in Path(path).rglob("*") if one.is_file() and one.name != "lock.mdb")
    return {str(one): (one.stat().st_mtime_ns, one.read_bytes()) for one in found}


def test_a_readonly_handle_writes_nothing_anywhere(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, engine = shop.db.path, shop.db.engine
    shop.db.close()
    monkeypatch.chdir(shop.made.parent)
    before = files(str(shop.made.parent)) | files("spark-warehouse")
    with ev.open(path, readonly=True) as db:
        db.engines.use(engine)
        assert db.sql("SELECT u FROM good ORDER BY id").to_pylist() == [{"u": "A"}, {"u": "B"}]
        assert db.verify("good").equal
        assert "good" in db.explain("good")
        db.sql("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t")
        writes = [
            "INSERT INTO t VALUES (3, 'c')",
            "INSERT INTO t SELECT id + 2, s FROM t",
            "UPDATE t SET s = 'x'",
            "DELETE FROM t",
            "DELETE FROM t WHERE id = 1",
            "CREATE TABLE x (id INT PRIMARY KEY)",
            "ALTER TABLE t ADD COLUMN a INT",
            "DROP TABLE t",
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM t",
            "CREATE OR REPLACE MATERIALIZED VIEW good AS SELECT id FROM t",
            "ALTER VIEW good RENAME TO better",
            "DROP VIEW good",
        ]
        for statement in writes:
            with pytest.raises((ReadOnly, InUse)):
                db.sql(statement)
        for statement in (*COMMANDS[:20], *QUERIES[:5]):
            with pytest.raises(EverviewError):
                db.sql(shop.filled(statement))
        for write in (db.maintain, lambda: db.rebuild("good"), lambda: db.table("t").delete([1])):
            with pytest.raises(ReadOnly):
                write()
    assert files(str(shop.made.parent)) | files("spark-warehouse") == before
