"""The random queries themselves: all of the grammar occurs, and both dialects mean the same."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from everview.engines.engine import Engine
from everview.errors import SqlError

from .cases import Case, random_case
from .oracle import Duck, Row, differences, rows_of
from .queries import Queries
from .shrinking import Shrinking, as_text
from .tables import content, tables
from .tree import Query

OCCUR = [
    *(" JOIN ", "LEFT JOIN", "RIGHT JOIN", "FULL OUTER JOIN", "CROSS JOIN", "SEMI JOIN"),
    *("ANTI JOIN", "<=>", " IN (SELECT", "NOT IN (SELECT", "(EXISTS", "NOT EXISTS", " OR (EXISTS"),
    *("IS NULL", "BETWEEN", "LIKE", "CASE WHEN", "coalesce", ", NULL)", "nullif", "IS NOT TRUE"),
    *("count(*)", "count(DISTINCT", "sum(", "sum(DISTINCT", "avg(", "min(", "max(", "FILTER ("),
    *("HAVING", "stddev_samp", "var_pop", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor"),
    *("max_by", "min_by", "listagg(", "listagg(DISTINCT", "ROLLUP", "CUBE", "GROUPING SETS"),
    *("grouping(", ") UNION (", "UNION ALL", "EXCEPT (", "EXCEPT ALL", "INTERSECT (", "WITH w0"),
    *("INTERSECT ALL", "SELECT DISTINCT", "row_number()", "rank()", "dense_rank()", "lag("),
    *("lead(", "ROWS BETWEEN", "RANGE BETWEEN", "PARTITION BY", "(VALUES", "LIMIT", "OFFSET"),
    *("LATERAL VIEW", "LATERAL VIEW OUTER", "FROM (SELECT", "NULLS LAST", " (SELECT max("),
    *(" (SELECT count(*)",),
]


def test_all_of_the_grammar_occurs_and_duckdb_takes_it() -> None:
    missing = set(OCCUR)
    for seed in range(12):
        chance = random.Random(seed)
        schema = tables(chance)
        duck = Duck()
        duck.load({table.name: content([], table) for table in schema})
        make = Queries(chance, schema)
        for _ in range(60):
            query = make.query()
            duck.rows(query.sql("duck"))
            missing -= {part for part in missing if part in query.sql("spark")}
        duck.close()
    assert not missing


def test_spark_answers_as_duckdb_does(spark: Engine, pytestconfig: pytest.Config) -> None:
    """Without views: what is compared with DuckDB is what Spark says, also where views refuse."""
    if not pytestconfig.getoption("--long"):
        pytest.skip("takes a second for each query; --long runs it")
    wrong = []
    for seed in range(2000, 2020):
        case = random_case(seed, 12)
        rows = {table.name: content(case.changes, table) for table in case.tables}
        duck = Duck()
        duck.load(rows)
        for query in case.queries:
            found = _selected(spark, query.sql("spark"), rows)
            if found is not None and (told := differences(found, duck.rows(query.sql("duck")))):
                wrong.append(f"{seed}: {query.sql('spark')}\n{told[:5]}")
        duck.close()
    assert not wrong, "\n".join(wrong)


def _selected(spark: Engine, query: str, rows: dict[str, pa.Table]) -> list[Row] | None:
    """None where Spark fails on what it takes: listagg(DISTINCT) beside other DISTINCTs."""
    try:
        return rows_of(spark.select("", query, {}, rows))
    except SqlError:
        if "listagg(DISTINCT" in query:
            return None
        raise


def test_a_failing_case_is_made_small() -> None:
    case = random_case(3, 40)
    found = [query for query in case.queries if _is_large(query)]
    case = replace(case, queries=(found[0],), whole=())

    def fails(smaller: Case) -> bool:
        puts = [row for change in smaller.changes for row in change.put]
        return "LEFT JOIN" in smaller.queries[0].sql("spark") and len(puts) > 2

    small = as_text(Shrinking(fails).shrink(case))
    assert sum(len(change.put) for change in small.changes) == 3
    assert not any(change.delete for change in small.changes)
    query = small.queries[0].sql("spark")
    assert query.count("SELECT") == query.count("JOIN") == query.count(" ON ") == 1, query
    assert "WHERE" not in query
    assert {table.name for table in small.tables} <= set(query.split())
    assert repr(small).startswith("Case(tables=(Table(name='t")


def _is_large(query: Query) -> bool:
    text = query.sql("spark")
    return "LEFT JOIN" in text and "WHERE" in text and text.count("SELECT") > 2
