"""Engines: what they answer, what they say when they can't, and that they keep quiet."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

import everview as ev
from everview.engines import sessions
from everview.engines.engine import Engine, readable, start
from everview.errors import EngineFailed, EngineUnavailable, InvalidSql, SqlError, TableNotFound
from tests.spark.samples import as_text, table_of_all_types


@pytest.fixture
def orders(db):
    table = db.create_table("Orders", {"id": "BIGINT", "who": "STRING", "n": "INT"}, key="id")
    table.put([{"id": i, "who": "ab"[i % 2], "n": i} for i in range(10)])
    return table


def test_a_query_gives_arrow_with_the_names_and_types_of_spark(engine, db, orders):
    query = "SELECT who, count(*), sum(n) AS total, max(id) + 1 FROM Orders GROUP BY who"
    answer = engine.select(db.path, query, {"Orders": ["who", "n", "id"]})
    assert answer.schema.names == ["who", "count(1)", "total", "(max(id) + 1)"]
    assert [str(type_) for type_ in answer.schema.types] == ["string", "int64", "int64", "int64"]
    assert sorted(map(tuple, (row.values() for row in answer.to_pylist()))) == [
        ("a", 5, 20, 9),
        ("b", 5, 25, 10),
    ]


def test_timestamps_come_back_in_utc_and_local_ones_without_a_zone(engine, db):
    table = table_of_all_types(db)
    answer = engine.select(db.path, "SELECT * FROM all_types", {"all_types": None})
    assert answer.schema == table.schema.arrow
    assert as_text(answer) == as_text(table.to_arrow())


def test_views_are_read_with_their_types_also_without_rows(engine, db):
    rows = table_of_all_types(db).to_arrow()
    for view in (rows, rows.slice(0, 0)):
        answer = engine.select(db.path, "SELECT * FROM v", {}, {"v": view})
        assert answer.schema.types == rows.schema.types
        assert as_text(answer) == as_text(view)


@pytest.mark.parametrize(
    "text",
    [
        "Traceback ...\nModuleNotFoundError: No module named 'pyarrow'\n",
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: everview. Make sure\n\tat x",
    ],
)
def test_another_python_in_the_workers_is_the_engines_fault_and_no_views(text):
    error = readable(AnalysisException(text))
    assert isinstance(error, EngineFailed)
    assert f"set PYSPARK_PYTHON={sys.executable} before Spark starts" in str(error)


def test_an_answer_that_arrow_has_no_type_for_is_refused(engine, db):
    with pytest.raises(InvalidSql, match=r"write CAST\(array\(\) AS ARRAY<INT>\)"):
        engine.select(db.path, "SELECT array() AS a", {})
    with pytest.raises(SqlError, match=r"can't be had as Arrow: .*; CAST its columns"):
        engine.select(db.path, "SELECT INTERVAL 1 MONTH AS a", {})


def test_tables_are_found_in_any_case_and_under_any_name(engine, db, orders):
    odd = db.create_table("große Tische", {"id": "INT"}, key="id")
    odd.put([{"id": 1}])
    query = (
        "SELECT o.ID FROM ORDERS o JOIN `große Tische` t ON o.id = t.id "
        "JOIN orders p ON o.id = p.id"
    )
    answer = engine.select(db.path, query, {"Orders": ["id"], odd.name: ["id"]})
    assert answer.to_pylist() == [{"ID": 1}]


def test_a_query_without_tables_is_evaluated(engine, db):
    assert engine.select(db.path, "SELECT 1 + 1 AS two", {}).to_pylist() == [{"two": 2}]


def test_an_array_without_a_type_is_given_one_or_refused(spark, db):
    """Arrow has none for it; in a table it has that of its column."""
    with pytest.raises(InvalidSql, match=r"write CAST\(array\(\) AS ARRAY<INT>\)"):
        spark.select(db.path, "SELECT array() AS l", {})
    db.sql("CREATE TABLE lists (k INT PRIMARY KEY, l ARRAY<INT>)")
    db.sql("INSERT INTO lists VALUES (1, array()), (2, NULL)")
    assert list(db.table("lists").scan()) == [{"k": 1, "l": []}, {"k": 2, "l": None}]


def test_a_column_or_table_that_is_not_there_is_said_in_one_sentence(engine, db, orders):
    with pytest.raises(InvalidSql, match="nope") as unresolved:
        engine.select(db.path, "SELECT nope FROM Orders", {"Orders": None})
    assert "Project" not in str(unresolved.value)
    with pytest.raises(TableNotFound, match="no table nope"):
        engine.select(db.path, "SELECT * FROM nope", {"nope": None})
    with pytest.raises(InvalidSql):
        engine.select(db.path, "SELEC 1", {})


def test_a_query_that_fails_while_running_is_said_without_a_trace(engine, db, orders):
    with pytest.raises(SqlError, match=r"(?i)divi.*zero") as failed:
        engine.select(db.path, "SELECT n / (n - 3) FROM Orders", {"Orders": None})
    assert "Traceback" not in str(failed.value)
    assert "\tat " not in str(failed.value)


def test_an_error_of_sparks_is_said_without_its_plan():
    plan = "Project [k#1L]\n+- Filter s#2: string"
    for unresolved in ("", "'"):
        error = AnalysisException(
            f"[NOT_BOOLEAN] s is no condition; line 1 pos 7;\n{unresolved}{plan}"
        )
        assert str(readable(error)) == "[NOT_BOOLEAN] s is no condition; line 1 pos 7"


def test_queries_of_two_threads_do_not_see_each_others_tables(engine, db, orders, tmp_path):
    with ev.open(tmp_path / "other.ev", create=True) as other:
        other.create_table("Orders", {"id": "STRING"}, key="id").put([{"id": "x"}])

        def ask(i: int) -> list:
            path = (db if i % 2 else other).path
            return engine.select(path, "SELECT min(id) AS m FROM Orders", {"Orders": None})

        with ThreadPoolExecutor(4) as pool:
            answers = [answer.to_pylist() for answer in pool.map(ask, range(4))]
    assert answers == [[{"m": "x"}], [{"m": 0}]] * 2


def test_views_of_the_users_own_session_are_left_alone(spark, db, orders):
    user = spark.session.builder.getOrCreate()
    user.sql("SELECT 'mine' AS id").createOrReplaceTempView("Orders")
    again = start("spark")
    assert again.select(db.path, "SELECT count(*) AS n FROM Orders", {"Orders": None}).to_pylist()
    assert user.table("Orders").collect()[0].id == "mine"
    user.catalog.dropTempView("Orders")


def test_an_unknown_engine_is_refused():
    with pytest.raises(EngineUnavailable, match="there are spark and sail"):
        start("flink")


def test_without_pysail_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pysail.spark", None)
    with pytest.raises(EngineUnavailable, match=r"pip install everview\[sail\]"):
        start("sail")


def run_python(code: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(ev.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": source} | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_java_the_error_names_what_to_install(tmp_path):
    code = "from everview.engines.engine import start; start('spark')"
    failed = run_python(code, tmp_path, PATH="", JAVA_HOME="")
    assert "EngineUnavailable: engine 'spark' needs Java 17" in failed.stderr
    assert "openjdk-17-jre-headless" in failed.stderr


def test_starting_spark_leaves_the_terminal_and_the_directory_alone(tmp_path):
    code = """
from everview.errors import SqlError
from everview.engines.engine import Engine, start
spark = start("spark")
print(spark.select("", "SELECT 1 + 1 AS n", {}).to_pylist())
try:
    spark.select("", "SELECT 1 / 0", {})
except SqlError:
    print("as expected")
"""
    ran = run_python(code, tmp_path)
    assert (ran.stdout, ran.stderr) == ("[{'n': 2}]\nas expected\n", "")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_interrupts_python_and_leaves_sail_running(sail: Engine) -> None:
    again = start("sail")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    time.sleep(0.2)  # it would stop a moment later
    host, port = sessions._sail_server.listening_address
    with socket.create_connection((host, port), timeout=5):
        pass
    for session in (sail, again):
        assert session.select("", "SELECT 1 + 1 AS n", {}).to_pylist() == [{"n": 2}]


def test_a_table_read_twice_with_two_filters_is_read_right(db: ev.Database, spark: Engine) -> None:
    db.engines.use(spark)
    table = db.create_table("t", {"id": "INT", "x": "INT"}, key="id")
    table.put([{"id": i, "x": x} for i, x in enumerate([-100, 1, 2, 3])])
    above = "SELECT count(*) AS n FROM t WHERE x > (SELECT avg(x) FROM t WHERE x > 0)"
    assert db.sql(above).to_pylist() == [{"n": 1}]
    with_name = "WITH u AS (SELECT * FROM t) SELECT count(*) AS n FROM u a, u b WHERE a.x < 0"
    assert db.sql(with_name + " AND b.x > 1").to_pylist() == [{"n": 2}]


def test_processes_may_be_started_while_sail_works(sail, db, orders):
    """As Spark's JVM is, with a few lines of Python before it; gRPC made some of them abort."""
    ended = threading.Event()

    def ask():
        while not ended.is_set():
            sail.select(db.path, "SELECT count(*) FROM Orders", {"Orders": ["id"]})

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(60):
            ran = subprocess.run(
                ["true"],
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
                capture_output=True,
                timeout=30,
            )
            assert (ran.returncode, ran.stderr) == (0, b"")
    finally:
        ended.set()
        asking.join()


@pytest.fixture(params=["sail", "spark connect"])
def forgetful(request, spark, connect_port, monkeypatch):
    """An engine whose session its server may end."""
    if request.param == "sail":
        return start("sail")
    connected = f"sc://127.0.0.1:{connect_port}"
    monkeypatch.setattr(sessions, "_spark", lambda: sessions._connect(connected))
    return start("spark")


@pytest.fixture
def sums(db, orders, spark):
    db.engines.use(spark)
    db.sql("CREATE MATERIALIZED VIEW sums AS SELECT who, sum(n) AS total FROM Orders GROUP BY who")
    return db.view("sums")


def test_views_go_on_when_a_session_has_ended(db, orders, sums, forgetful):
    db.engines.use(forgetful)
    db.maintain()
    forgetful.session.client.release_session()
    orders.delete([9])
    report = db.maintain()
    assert (report.failed, report.epochs) == ({}, 1)
    assert {row["who"]: row["total"] for row in sums.scan()} == {"a": 20, "b": 16}


def test_a_query_after_a_session_has_ended_is_asked_again(forgetful, db, orders):
    forgetful.session.client.release_session()
    with pytest.raises(EngineFailed, match="try again"):
        forgetful.select(db.path, "SELECT * FROM Orders", {"Orders": None})
    assert forgetful.select(db.path, "SELECT * FROM Orders", {"Orders": None}).num_rows == 10


def test_a_session_that_ends_in_the_middle_of_a_query_says_so_too(
    forgetful, db, orders, monkeypatch
):
    """What was shown to it can't be taken back any more, which is not what went wrong."""
    show = Engine._show

    def shown(self, *given):
        show(self, *given)
        self.session.client.release_session()

    monkeypatch.setattr(Engine, "_show", shown)
    with pytest.raises(EngineFailed, match="try again"):
        forgetful.select(db.path, "SELECT * FROM Orders", {"Orders": None})
