"""Finer points of SQL, for which the page has no line: each equals Spark's own answer, when it is
loaded and under changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.breadth.test_breadth import counted

TABLES = ("t", "u")
COLUMNS = "k BIGINT PRIMARY KEY, a BIGINT, b STRING, c BIGINT, x DOUBLE"
POINTS = {
    "no_rows_with_an_equality_or_a_null": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE "
    "u.a = t.a OR (u.b IS NULL AND u.c > 7))",
    "no_rows_with_an_equality_or_one_null": "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u "
    "WHERE u.a = t.c OR t.b IS NULL)",
    "some_row_with_an_equality_or_a_null": "SELECT k, EXISTS (SELECT 1 FROM u WHERE u.k = t.c OR "
    "t.b IS NULL) AS e FROM t",
    "lag_and_lead_that_ignore_nulls": "SELECT k, lag(c) IGNORE NULLS OVER (PARTITION BY b ORDER BY "
    "k) AS p, lead(c, 2) IGNORE NULLS OVER (PARTITION BY b ORDER BY k) AS n FROM t",
    "several_known_values_back_and_ahead": "SELECT k, lag(c, 3, -1) IGNORE NULLS OVER (ORDER BY b "
    "DESC, k) AS p, lead(d, 2) IGNORE NULLS OVER (ORDER BY b, k DESC) AS n, lead(d, 3) IGNORE NULLS"
    " OVER (ORDER BY k) AS o FROM (SELECT k, b, c, CASE WHEN a > 2 THEN c END AS d FROM t)",
    "the_last_value_that_is_known": "SELECT k, last_value(c) IGNORE NULLS OVER (ORDER BY k) AS l, "
    "first_value(a) IGNORE NULLS OVER (ORDER BY k ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS f "
    "FROM t",
    "other_values_that_are_known": "SELECT k, nth_value(c, 2) IGNORE NULLS OVER (PARTITION BY b "
    "ORDER BY k) AS n, any_value(c) IGNORE NULLS OVER (PARTITION BY b ORDER BY k) AS v, last(c) "
    "FILTER (WHERE a > 1) IGNORE NULLS OVER (PARTITION BY b ORDER BY k) AS l FROM t",
    "the_first_rows_of_a_lateral_subquery": "SELECT t.k, q.k AS j FROM t, LATERAL (SELECT u.k FROM "
    "u WHERE u.a = t.a ORDER BY u.c DESC, u.k LIMIT 2) q",
    "the_first_row_of_a_scalar_subquery": "SELECT k, (SELECT u.b FROM u WHERE u.a = t.a ORDER BY "
    "u.k LIMIT 1) AS f FROM t",
    "windows_over_rows_of_which_no_column_is_needed": "SELECT count(*) OVER () AS n FROM t",
    "an_aggregate_of_the_first_rows": "SELECT sum(k) AS s, count(*) AS n FROM (SELECT k FROM t "
    "ORDER BY c DESC, k LIMIT 3)",
    "a_median_of_the_first_rows": "SELECT median(c) AS m FROM (SELECT c FROM t ORDER BY c DESC, k "
    "LIMIT 3)",
    "partitions_of_equal_doubles": "SELECT k, count(*) OVER (PARTITION BY x) AS n FROM t",
    "ranks_of_equal_doubles": "SELECT k, rank() OVER (ORDER BY x DESC) AS r FROM t",
    "ranks_of_structs": "SELECT k, rank() OVER (ORDER BY s) AS r, dense_rank() OVER (ORDER BY s "
    "DESC NULLS FIRST) AS d, sum(k) OVER (ORDER BY struct(b, a)) AS n FROM (SELECT k, a, b, CASE "
    "WHEN c > 2 THEN struct(a, b) END AS s FROM t)",
    "any_of_equal_structs": "SELECT a, c, any_value(struct(a, c)) AS v FROM t GROUP BY a, c",
    "constants_that_are_arrays_and_structs": "SELECT t.k, v.l, v.s FROM t JOIN (VALUES (1, array(1,"
    " 2), named_struct('p', 1, 'q', 'it''s')), (2, NULL, named_struct('p', 2, 'q', 'x'))) "
    "v(a, l, s) ON t.a = v.a",
    "sums_that_need_not_fit": "SELECT b, count(*) AS n, try_sum(CASE WHEN a > 2 THEN "
    "9000000000000000000 ELSE c END) AS s, try_sum(CASE WHEN a > 2 THEN CAST(9e27 AS DECIMAL(28, 0)"
    ") ELSE c END) AS m, try_sum(DISTINCT c) AS d, try_sum(x) AS x FROM t GROUP BY b",
    "a_sum_that_need_not_fit": "SELECT try_sum(CASE WHEN c > 4 THEN 9000000000000000000 END) AS s, "
    "try_avg(c) AS m, try_avg(DISTINCT CAST(c AS DECIMAL(33, 3)) / 7) AS d FROM t",
    "pairs_with_equal_doubles": "SELECT count(DISTINCT x, a IS NULL) AS n FROM t",
    "pairs_of_nested_values": "SELECT b, sum(c) AS s, count(DISTINCT CASE WHEN a > 2 THEN "
    "array('p, q') ELSE array('p', 'q') END, c > 4) AS n, count(DISTINCT struct(CASE WHEN a = 1 "
    "THEN 'null' END), c) FILTER (WHERE k > 3) AS m FROM t GROUP BY b",
    "all_pairs_of_nested_values": "SELECT count(DISTINCT array(b), c) AS n FROM t WHERE k < 3",
    "pairs_with_bytes": "SELECT count(DISTINCT CASE WHEN a > 2 THEN X'FF' ELSE X'FE' END, c) AS n "
    "FROM t",
    "lists_in_windows": "SELECT k, collect_list(c) OVER (PARTITION BY b ORDER BY k) AS l, "
    "collect_list(c) OVER (ORDER BY k ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING) AS e FROM t",
    "an_aggregate_of_elements": "SELECT sum(e) AS s, count(*) AS n FROM (SELECT explode(array(a, c)"
    ") AS e FROM t)",
    "the_greatest_by_another_in_windows": "SELECT k, max_by(k, c * 100 + k) OVER (PARTITION BY b) "
    "AS m, min_by(a, c * 100 + k) OVER (PARTITION BY b) AS n FROM t",
    "maps_by_another": "SELECT b, max_by(m, k) AS m FROM (SELECT k, b, map('a', a) AS m FROM t) "
    "GROUP BY b",
    "structs_that_are_equal": "SELECT k, struct(a, b) = struct(c, b) AS e, (a, b) <=> (c, b) AS s, "
    "CASE WHEN a > 1 THEN struct(a, struct(b)) END = struct(c, struct(b)) AS n FROM t WHERE "
    "struct(c, b) <> struct(a, b) OR b IS NULL",
    "rows_for_which_a_window_has_any": "SELECT k FROM t WHERE EXISTS (SELECT rank() OVER (PARTITION"
    " BY b ORDER BY c) FROM u WHERE u.b < t.b)",
    "the_greatest_of_a_window_of_other_rows": "SELECT k FROM t WHERE c < (SELECT max(s) FROM "
    "(SELECT sum(c) OVER (PARTITION BY b ORDER BY k) AS s FROM u WHERE u.a <= t.a))",
    "a_window_that_is_a_constant": "SELECT k, count(CAST(NULL AS INT)) OVER () AS n FROM t",
    "scalars_beside_aggregates": "SELECT b, (SELECT max(c) FROM u) + sum(c) AS s, sum(c + (SELECT "
    "min(a) FROM u)) AS r, EXISTS (SELECT 1 FROM u WHERE c > 8) AS e FROM t GROUP BY b",
    "scalars_beside_rollup": "SELECT b, (SELECT max(c) FROM u) AS m, count(*) AS n FROM t GROUP BY "
    "ROLLUP (b)",
    "columns_of_outside_in_a_lateral_subquery": "SELECT t.k, q.z FROM t, LATERAL (SELECT t.a AS z "
    "FROM u) q",
    "columns_given_twice_and_joined": "SELECT p.k, q.a, q.a2 FROM t p JOIN (SELECT k, a, a AS a2 "
    "FROM u) q ON p.k = q.k",
    "hints_of_partitions": "SELECT /*+ REPARTITION(3) */ k, a FROM t UNION ALL SELECT /*+ "
    "REBALANCE */ k, c FROM u",
    "percentiles_from_above": "SELECT b, percentile_cont(0.25) WITHIN GROUP (ORDER BY c DESC) AS p,"
    " percentile_cont(0.25) WITHIN GROUP (ORDER BY c) AS q, percentile_disc(0.25) WITHIN GROUP "
    "(ORDER BY c DESC) AS r FROM t GROUP BY b",
    "modes_in_an_order": "SELECT a, mode() WITHIN GROUP (ORDER BY c) AS m, mode() WITHIN GROUP "
    "(ORDER BY c DESC) AS n, mode(c, true) AS o FROM t GROUP BY a",
    "several_by_another": "SELECT b, max_by(k, c * 100 + k, 2) AS x, min_by(a, c * 100 + k, 3) AS y"
    " FROM t GROUP BY b",
    "several_by_another_in_windows": "SELECT k, max_by(k, c * 100 + k, 2) OVER (PARTITION BY b) AS "
    "x FROM t",
    "lists_of_text_in_windows": "SELECT k, listagg(b) OVER (PARTITION BY a ORDER BY k) AS l FROM t",
    "different_numbers_as_text": "SELECT a, listagg(DISTINCT c * 5, ',') WITHIN GROUP (ORDER BY c "
    "* 5 DESC) AS d FROM t GROUP BY a",
    "the_first_of_rows_that_count": "SELECT k, first(c) FILTER (WHERE a > 1) OVER (PARTITION BY b "
    "ORDER BY k ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS f, last(c) FILTER (WHERE a < 3) OVER "
    "(PARTITION BY b ORDER BY k) AS l FROM t",
    "rows_in_a_list": "SELECT k, (a, b) IN ((2L, 'x'), (1L, 'y')) AS i FROM t WHERE (a, c) NOT IN "
    "((2L, 3L), (1L, 4L)) OR b IS NULL",
    "how_well_a_line_fits": "SELECT b, regr_r2(a, c) AS r, regr_r2(a * 0, c) AS y, regr_r2(a, c * "
    "0) AS x FROM t GROUP BY b",
    "rows_with_maps_numbered": "SELECT k, m, row_number() OVER (PARTITION BY b ORDER BY k) AS r "
    "FROM (SELECT k, b, map('a', a) AS m FROM t)",
}


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "finer.ev", create=True) as database:
        database.engines.use(engine)
        for table in TABLES:
            database.sql(f"CREATE TABLE {table} ({COLUMNS})")
        yield database


def row(chance: random.Random, key: int) -> dict[str, Any]:
    return {
        "k": key,
        "a": chance.choice([None, 1, 2, 3, 4]),
        "b": chance.choice([None, "x", "y"]),
        "c": chance.choice([None, *range(10)]),
        "x": chance.choice([None, 0.0, -0.0, 1.5, float("nan"), float("-inf")]),
    }


def change(db: ev.Database, chance: random.Random) -> None:
    for table in TABLES:
        db.table(table).put([row(chance, key) for key in chance.sample(range(25), 15)])
        there = [found["k"] for found in db.table(table).scan()]
        db.table(table).delete(chance.sample(there, 3))


def answers(
    db: ev.Database, spark: Engine, points: list[str]
) -> dict[str, Counter[tuple[str, ...]]]:
    """What Spark has for each of some points."""
    for table in TABLES:
        rows = db.table(table).to_arrow()
        spark.session.createDataFrame(rows).createOrReplaceTempView(table)
    return {name: counted(spark.session.sql(POINTS[name]).toArrow().to_pylist()) for name in points}


def test_finer_points_equal_sparks_answer(
    db: ev.Database, spark: Engine, request: pytest.FixtureRequest
) -> None:
    """Half of the views are there before the rows. The short form has a part of them for each
    engine: together all, and few on Spark, where they take long."""
    is_long, on_spark = request.config.getoption("--long"), db.engine.name == "spark"
    shown = [is_long or (number % 4 == 0) is on_spark for number in range(len(POINTS))]
    points, chance = list(compress(POINTS, shown)), random.Random(2)
    for name in points[::2]:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {POINTS[name]}")
    change(db, chance)
    assert db.maintain().failed == {}
    for name in points[1::2]:
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {POINTS[name]}")
    for epoch in range(2):
        if epoch:
            change(db, chance)
        assert db.maintain().failed == {}
        wanted = answers(db, spark, points)
        found = {name: counted(db.view(name).to_arrow().to_pylist()) for name in points}
        assert {name: rows for name, rows in found.items() if rows != wanted[name]} == {}


TIES = {
    "the_first_of_what_ties": "SELECT k, first_value(c) OVER (PARTITION BY b ORDER BY a) AS f, "
    "last_value(k) OVER (PARTITION BY b ORDER BY a DESC, c DESC NULLS FIRST) AS l FROM t",
    "the_first_known_of_what_ties": "SELECT k, first_value(c) IGNORE NULLS OVER (ORDER BY a RANGE "
    "BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) AS f FROM t",
    "few_rows_after_an_offset": "SELECT k FROM t LIMIT 20 OFFSET 5",
    "what_ties_at_both_ends": "SELECT a, c FROM t ORDER BY a LIMIT 5 OFFSET 3",
}


def test_what_ties_is_verified(db: ev.Database, spark: Engine) -> None:
    """Where SQL leaves open which rows come first, views and VERIFY agree."""
    chance = random.Random(3)
    for name, query in TIES.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for _ in range(3):
        change(db, chance)
        assert db.maintain().failed == {}
        assert [str(verdict) for verdict in map(db.verify, TIES) if not verdict.equal] == []
