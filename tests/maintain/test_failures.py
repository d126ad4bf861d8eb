"""Whatever an engine throws: the view at fault stops alone, or all wait for the engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JNetworkError

import everview as ev
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import EngineFailed
from everview.programs.programs import Programs


class Invented(Exception):
    """What no engine of today throws."""


@pytest.fixture
def events(tmp_path: Path, sail: Engine, spark: Engine) -> Iterator[ev.Database]:
    yield from database(tmp_path, sail)


def database(path: Path, engine: Engine) -> Iterator[ev.Database]:
    with ev.open(path / "events.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE events (id INT PRIMARY KEY, epoch BIGINT, text STRING)")
        db.sql("INSERT INTO events VALUES (1, 5, NULL)")
        db.sql("CREATE MATERIALIZED VIEW number AS SELECT count(*) AS n FROM events")
        db.sql("CREATE MATERIALIZED VIEW odd AS SELECT id, epoch + 1 AS next FROM events")
        yield db


def put(db: ev.Database) -> None:
    db.sql("INSERT INTO events VALUES (2, 1767225600000000000, '{'), (3, 7, NULL)")


def number(db: ev.Database) -> int:
    (row,) = db.view("number").scan()
    return int(row["n"])


OVERFLOW = "java.lang.ArithmeticException: long overflow, on the row id = 2, epoch = "
MANY = "IF(epoch > 100, 2000000000, 1)"
FAILING = {
    "times": ("timestamp_seconds(epoch)", OVERFLOW + "1767225600000000000 of events; correct the"),
    "parsed": ("from_json(text, 'a INT', map('mode', 'FAILFAST'))", "MALFORMED_RECORD_IN_PARSING"),
}
ALSO_FAILING = {
    "much": (f"size(array_repeat('x', {MANY}))", "the engine spark has too little memory for this"),
    "matched": ("'abc' RLIKE text", "java.util.regex.PatternSyntaxException"),
    "parts": ("split('abc', text)", "java.util.regex.PatternSyntaxException"),
    "replaced": ("regexp_replace('abc', text, 'x')", "INVALID_PARAMETER_VALUE.PATTERN"),
    "long_text": (f"length(repeat(repeat(text, 50000), {MANY}))", "integer overflow"),
    "shown": ("date_format(TIMESTAMP'2020-01-01', text)", "DATETIME_PATTERN_RECOGNITION"),
    "zone": ("from_utc_timestamp(TIMESTAMP'2020-01-01', text)", "INVALID_TIMEZONE"),
    "numbers": ("size(sequence(1L, epoch))", "COLLECTION_SIZE_LIMIT_EXCEEDED"),
    "link": ("url_decode(concat(text, '%zz'))", "CANNOT_DECODE_URL"),
    "parsed_number": ("to_number(text, '999')", "INVALID_FORMAT"),
    "months": ("add_months(DATE'2020-01-01', CAST(epoch % 2147483647 AS INT))", "OVERFLOW"),
    "span": ("make_dt_interval(CAST(epoch % 2147483647 AS INT))", "INTERVAL_ARITHMETIC_OVERFLOW"),
    "charset": ("decode(CAST(text AS BINARY), text)", "CHARSET"),
    "cast": ("CAST(text AS INT)", "CAST_INVALID_INPUT"),
    "scale": ("CAST(epoch AS DECIMAL(5, 0))", "NUMERIC_VALUE_OUT_OF_RANGE"),
    "quotient": ("1 DIV (epoch - 1767225600000000000)", "DIVIDE_BY_ZERO"),
}


def test_whatever_a_row_makes_spark_throw_stops_one_view(
    tmp_path: Path, spark: Engine, request: pytest.FixtureRequest
) -> None:
    """Exceptions with and without an error class, and a row for which memory does not suffice."""
    failing = FAILING | (ALSO_FAILING if request.config.getoption("--long") else {})
    for db in database(tmp_path, spark):
        for name, (expression, _) in failing.items():
            query = f"SELECT id, {expression} AS made FROM events"
            db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        assert db.maintain().failed == {}
        put(db)
        report = db.maintain()
        assert (report.epochs, sorted(report.failed)) == (1, sorted(failing))
        for name, (_, message) in failing.items():
            assert message in report.failed[name]
            assert "the row id = 2, " in report.failed[name] or name == "much"
        assert (number(db), db.view("odd").status) == (3, "live")
        db.sql("DELETE FROM events WHERE id = 2")
        db.rebuild("times")
        assert db.maintain().failed == {}
        assert db.view("times").status == "live"


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException, whose: str | None) -> None:
    """Have every job fail with an error, or those of one view."""
    for name in ("run", "load"):
        work = getattr(Programs, name)

        def fails(self: Any, views: Any, *given: Any, work: Any = work) -> Any:
            names = [view.name for view in (views if isinstance(views, list) else [views])]
            if whose is None or whose in names:
                raise error
            return work(self, views, *given)

        monkeypatch.setattr(Programs, name, fails)


@pytest.mark.parametrize(
    "error",
    [
        *(Invented("a new idea"), Invented(), ValueError("no such value"), RecursionError("deep")),
        *(pa.ArrowInvalid("offset overflow"), KeyError("column"), ZeroDivisionError()),
        *(AssertionError("not so"), TypeError("of another type"), UnicodeError("no text")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_that_nobody_knows_stops_the_view_that_has_it(
    events: ev.Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    events.maintain()
    put(events)
    with monkeypatch.context() as planted:
        failing(planted, error, "odd")
        report = events.maintain()
    assert (list(report.failed), report.epochs, number(events)) == (["odd"], 1, 3)
    assert (str(error).strip("'") or type(error).__name__) in report.failed["odd"]
    assert events.view("odd").status == "stopped"


def test_such_an_exception_in_a_load_stops_that_view(
    events: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, Invented("a new idea"), "odd")
    report = events.maintain()
    assert (report.loaded, list(report.failed), number(events)) == (["number"], ["odd"], 1)


OF_THE_ENGINE = [
    RuntimeError("Job aborted: java.lang.OutOfMemoryError: Java heap space"),
    MemoryError("no room"),
    RuntimeError("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"),
    RuntimeError("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)"),
    OSError(24, "Too many open files"),
    ConnectionRefusedError(111, "Connection refused"),
    Py4JNetworkError("Answer from Java side is empty"),
]


@pytest.mark.parametrize("error", OF_THE_ENGINE, ids=lambda error: str(error)[:40])
def test_while_the_engine_fails_views_wait_and_say_why(
    events: ev.Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    events.maintain()
    put(events)
    with monkeypatch.context() as planted:
        failing(planted, error, None)
        with pytest.raises(EngineFailed, match="views wait"):
            events.maintain()
    view = events.view("odd")
    assert view.status == "waiting"
    assert view.error is not None
    assert str(error)[:20] in view.error
    shown = CliRunner().invoke(main, ["status", str(events.path)]).output
    assert "odd is waiting: the engine sail failed" in shown
    assert number(events) == 1
    assert events.maintain().failed == {}
    assert (number(events), view.status, view.error) == (3, "live", None)


def test_an_engine_that_answers_nothing_is_at_fault_itself(
    events: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    events.maintain()
    put(events)
    with monkeypatch.context() as planted:
        failing(planted, Invented("a new idea"), None)
        planted.setattr(Engine, "answers", lambda self: False)
        with pytest.raises(EngineFailed, match="a new idea"):
            events.maintain()
    assert events.view("odd").status == "waiting"
    assert events.maintain().failed == {}
    assert number(events) == 3


def test_an_engine_answers(engine: Engine) -> None:
    assert engine.answers()
