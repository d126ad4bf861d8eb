"""Integers that overflow stop their view on both engines, and only where Spark computes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine

COLUMNS = "k BIGINT PRIMARY KEY, b TINYINT, h SMALLINT, i INT, l BIGINT, e DECIMAL(20,3)"
LEAST = {"k": 2, "b": -128, "h": -32768, "i": -(2**31), "l": -(2**63), "e": "-9e15"}
GREATEST = {"k": 3, "b": 127, "h": 32767, "i": 2**31 - 1, "l": 2**63 - 1, "e": "9e15"}
SMALL = {"k": 1, "b": 1, "h": 2, "i": 3, "l": 4, "e": "5"}
NULLS = {"k": 0}
# queries that fail for the greatest, or for the least, of each type
TOO_GREAT = {
    "tinyint": "SELECT k, b + 1Y AS r FROM t",
    "smallint": "SELECT k, h * h AS r FROM t",
    "int": "SELECT k, i + 1 AS r FROM t",
    "bigint": "SELECT k, l * 2 AS r FROM t",
    "within": "SELECT k, (l + 1) - 1 AS r FROM t",
    "of_widths": "SELECT k, CAST(i + 1 AS BIGINT) + h AS r FROM t",
    "compared": "SELECT k FROM t WHERE i + 1 > 0",
    "cast_compared": "SELECT k FROM t WHERE CAST(l AS INT) > 0",
    "decimal_compared": "SELECT k, CAST(e AS DECIMAL(5, 2)) > 1 AS r FROM t",
    "key": "SELECT t.k, u.k AS j FROM t JOIN u ON t.i + 1 = u.i",
    "argument": "SELECT sum(i * 2) AS s FROM t",
    "group": "SELECT l + 1 AS g, count(*) AS n FROM t GROUP BY l + 1",
    "branch": "SELECT k, CASE WHEN b > 5 THEN l + l END AS r FROM t",
    "condition": "SELECT k FROM t WHERE b > 5 AND l + l > 7",
    "element": "SELECT k, transform(array(i), x -> x + 1) AS r FROM t",
    "window": "SELECT k, sum(i + 1) OVER (PARTITION BY b) AS s FROM t",
}
TOO_SMALL = {
    "negative": "SELECT k, -i AS r FROM t",
    "negatives": "SELECT k, -l AS r FROM t",
    "absolute": "SELECT k, abs(b) AS r FROM t",
    "subtracted": "SELECT k, h - 1S AS r FROM t",
    "divided": "SELECT k, l div -1 AS r FROM t",
}
# queries that have an answer for all rows
FINE = {
    "wide": "SELECT k, CAST(i AS BIGINT) * i + 1 AS r FROM t",
    "not_taken": "SELECT k, CASE WHEN b < 100 AND b > -100 THEN l * 2 ELSE l END AS r FROM t",
    "not_asked": "SELECT k, i < 100 AND i > -100 AND i * 2 > 0 AS r, h NOT BETWEEN -9 AND 9 "
    "OR h * h > 3 AS s FROM t",
    "filtered": "SELECT k FROM t WHERE b BETWEEN -9 AND 9 AND l + l > 0 AND CAST(l AS INT) > 1",
    "known_first": "SELECT k, coalesce(i, l * 2) AS r, if(h > 5 OR h < -5, 0, h * 16000) AS s FROM "
    "t",
    "summed_if": "SELECT sum(l + l) FILTER (WHERE h BETWEEN -9 AND 9) AS s FROM t",
    "forgiven": "SELECT k, try_add(b, b) AS b, try_multiply(h, 2S) AS h, try_subtract(i, 1) AS i, "
    "try_multiply(l, 3) AS l, try_cast(l AS INT) AS c FROM t",
    "least": "SELECT k, i = -2147483648 AS i, l <=> -9223372036854775808 AS l FROM t",
    "many": f"SELECT k, {' + '.join(['CAST(i AS BIGINT)'] * 12)} + coalesce(h + 0L, 1) AS r FROM t",
}


@pytest.fixture(params=["sail", "spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """To stop as many views takes Spark a minute."""
    if request.param == "spark" and not request.config.getoption("--long"):
        pytest.skip("on Spark with --long")
    found: Engine = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "overflow.ev", create=True) as database:
        database.engines.use(engine)
        for table in ("t", "u"):
            database.sql(f"CREATE TABLE {table} ({COLUMNS})")
        yield database


def create(db: ev.Database, queries: dict[str, str]) -> None:
    for name, query in queries.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")


def test_views_stop_at_what_does_not_fit_and_name_the_row(db: ev.Database) -> None:
    create(db, TOO_GREAT | TOO_SMALL)
    db.table("t").put([NULLS, SMALL])
    assert db.maintain().failed == {}
    db.table("t").put(GREATEST)
    failed = db.maintain().failed
    assert set(failed) == set(TOO_GREAT)
    assert [name for name, why in failed.items() if "k = 3" not in why] == []
    db.table("t").put(LEAST)
    assert set(db.maintain().failed) == set(TOO_SMALL)


def test_what_is_not_computed_does_not_stop_a_view(db: ev.Database, spark: Engine) -> None:
    create(db, FINE)
    db.table("t").put([NULLS, SMALL, LEAST, GREATEST])
    assert db.maintain().failed == {}
    spark.session.createDataFrame(db.table("t").to_arrow()).createOrReplaceTempView("t")
    for name, query in FINE.items():
        wanted = spark.session.sql(query).toArrow().to_pylist()
        assert rows(db.view(name).to_arrow().to_pylist()) == rows(wanted), query


def rows(given: list[dict[str, Any]]) -> list[str]:
    return sorted(map(str, given))
