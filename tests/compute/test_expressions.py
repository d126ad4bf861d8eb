"""Expressions that are computed with Arrow have Spark's answers, also for values that hurt."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from everview.compute import Compiled, EngineNeeded, compiled
from everview.engines.engine import Engine
from everview.plan.nodes import Filter, Node, Project
from everview.schema import Column
from everview.spark.types import struct
from everview.sql.catalyst import translate
from tests.breadth.hurting import POOLS, table

ROWS = table()
NUMBERS = ("byte", "short", "int", "long", "float", "double", "dec", "big", "fine")
WIDE = ("big", "fine")  # decimals of 38 digits
COMPARED = (*NUMBERS, "str", "date", "ts", "ntz", "bool")
EXPRESSIONS = [
    *(f"{n}_1 {sign} {n}_2" for n in NUMBERS for sign in ("+", "-")),
    *(f"{n}_1 * {n}_2" for n in NUMBERS if n not in WIDE),
    *(f"{n}_1 {sign} {n}_2" for n in COMPARED for sign in ("=", "<>", "<", "<=", ">", ">=", "<=>")),
    *(f"-{n}_1" for n in NUMBERS if n not in WIDE),
    *(f"abs({n}_1)" for n in NUMBERS if n not in WIDE),
    *(f"{n}_1 IS NULL" for n in COMPARED),
    *(f"coalesce({n}_1, {n}_2)" for n in COMPARED),
    *(f"if({n}_1 > {n}_2, {n}_1, {n}_2)" for n in COMPARED),
    *(f"{n}_1 IN ({n}_2, {n}_1)" for n in COMPARED),
    *("double_1 / double_2", "dec_1 / dec_2", "big_1 / dec_2", "fine_1 / big_2", "dec_1 / 7.0"),
    *("long_1 div long_2", "int_1 % int_2", "long_1 % long_2", "byte_1 % byte_2", "int_1 % 4"),
    *("dec_1 * big_2", "dec_1 + fine_2", "dec_1 * dec_2 * dec_1", "1 - dec_1", "dec_1 * fine_2"),
    *("CAST(int_1 AS BIGINT)", "CAST(long_1 AS INT)", "CAST(int_1 AS TINYINT)"),
    *("CAST(int_1 AS DOUBLE)", "CAST(long_1 AS DOUBLE)", "CAST(int_1 AS DECIMAL(12,2))"),
    *("CAST(long_1 AS DECIMAL(19,0))", "CAST(long_1 AS DECIMAL(5,2))", "CAST(dec_1 AS DOUBLE)"),
    *("CAST(dec_1 AS DECIMAL(20,6))", "CAST(dec_1 AS DECIMAL(5,1))", "CAST(fine_1 AS DOUBLE)"),
    *("CAST(fine_1 AS DECIMAL(38,2))", "CAST(int_1 AS STRING)", "CAST(long_1 AS STRING)"),
    *("CAST(float_1 AS DOUBLE)", "CAST(bool_1 AS INT)", "round(dec_1, 2)"),
    *("bool_1 AND bool_2", "bool_1 OR bool_2", "NOT bool_1", "bool_1 AND int_1 > 1 OR bool_2"),
    *("CASE WHEN int_1 > 0 THEN 'a' WHEN int_2 > 0 THEN 'b' END", "nullif(int_1, 1)"),
    *("CASE WHEN bool_1 THEN dec_1 ELSE 0 END", "CASE str_1 WHEN 'a' THEN 1 WHEN 'b' THEN 2 END"),
    *("int_1 IN (1, 2, NULL)", "str_1 IN ('a', 'abc', '%')", "int_1 NOT IN (1, 7)"),
    *("str_1 LIKE 'a%'", "str_1 LIKE '%a%b%'", "str_1 LIKE '_'", "str_1 LIKE '%x%x'"),
    *("str_1 LIKE '% %x%'", "str_1 LIKE '%\\t%'", "str_1 LIKE '%'", "str_1 LIKE '[1%'"),
    *("str_1 LIKE '%a'", "str_1 LIKE '%b%'", "contains(str_1, '')", "startswith(str_1, '😀')"),
    *("substring(str_1, 1, 2)", "substring(str_1, 0, 2)", "substring(str_1, 2, 1000)"),
    *("substring(str_1, 3, 0)", "left(str_1, 1)", "length(str_1)", "upper(str_1)", "lower(str_1)"),
    *("str_1 || str_2", "concat(str_1, 'x', str_2)", "upper(substring(str_1, 1, 1))"),
    *("year(date_1)", "month(date_1)", "quarter(date_1)", "dayofmonth(date_1)"),
    *("date_1 >= DATE '2020-01-31'", "dec_1 > 1.5", "double_1 < 1e20", "int_1 = 12"),
    *("dec_1 BETWEEN 0 AND 2.45", "int_1 > 1 AND 10 / int_1 > 1", "str_1 = 'o\\'Brien-x y_z'"),
]
ON_THE_ENGINE = [
    *("sin(double_1)", "CAST(str_1 AS INT)", "CAST(double_1 AS STRING)", "date_1 + 1"),
    *(
        "CAST(ts_1 AS DATE)",
        "-big_1",
        "abs(fine_1)",
        "regexp_replace(str_1, 'a', 'b')",
        "substring(str_1, -2, 1)",
    ),
    *("substring(str_1, int_1, 2)", "str_1 LIKE 'a\\\\_%'", "str_1 LIKE str_2", "year(ts_1)"),
    *("big_1 * big_2", "fine_1 * fine_2", "round(double_1, 2)", "round(dec_1, -1)"),
    *("CAST(double_1 AS INT)", "hash(int_1)"),
]


@pytest.fixture(scope="module")
def columns() -> tuple[Column, ...]:
    return tuple(Column(field.name, field.type) for field in ROWS.schema)


def trees_of(plan: Node) -> list[tuple[Node, Any]]:
    return [(node, tree) for node in plan.walk() for tree in node.trees()]


def test_answers_are_those_of_spark(spark: Engine, columns: tuple[Column, ...]) -> None:
    """Whatever value is computed here, Spark has the same, and does not fail on that row."""
    width, compared = 12, 0
    for at in range(0, len(EXPRESSIONS), width):
        here = {}
        for number, sql in enumerate(EXPRESSIONS[at : at + width]):
            here[f"e{number}"] = sql, _answers(spark, sql, columns)
        frame = spark.session.createDataFrame(ROWS, struct(columns))
        there = frame.selectExpr(
            *(
                f"CASE WHEN rid IN ({', '.join(map(str, answers)) or -1}) THEN {sql} END AS {name}"
                for name, (sql, answers) in here.items()
            )
        ).toArrow()
        for name, (sql, answers) in here.items():
            theirs = there[name].to_pylist()
            for row, value in answers.items():
                assert repr(value) == repr(theirs[row]), (
                    f"{sql} of {ROWS.slice(row, 1).to_pylist()}"
                )
            compared += len(answers)
            assert answers, f"{sql}: nothing was computed"
    assert compared > 40 * len(EXPRESSIONS)


def _answers(spark: Engine, sql: str, columns: tuple[Column, ...]) -> dict[int, Any]:
    """By row, what is computed here; without the rows that are left to the engine."""
    query = f"SELECT rid, {sql} AS x FROM t"
    plan = translate(spark.session, query, {"t": columns}).plan
    rows, places = ROWS.combine_chunks(), list(range(ROWS.num_rows))
    for node in plan.walk():
        if isinstance(node, Project):
            parts = [compiled(tree, node.inputs()[0].columns) for tree in node.trees()]
            types = [column.type for column in node.columns]
            assert None not in parts, f"{sql} is left to the engine"
            assert [part.type for part in parts if part] == types, sql
            rows, places = _projected(node, [part for part in parts if part], rows, places)
        assert not isinstance(node, Filter)
    return dict(zip(places, rows["x"].to_pylist(), strict=True))


def _projected(
    node: Node, parts: list[Compiled], rows: pa.Table, places: list[int]
) -> tuple[pa.Table, list[int]]:
    done, left = [], []
    for number, place in enumerate(places):
        row = rows.slice(number, 1)
        try:
            values = {name: row[name].combine_chunks() for name in row.column_names}
            arrays = [part.of(values, 1) for part in parts]
        except (EngineNeeded, pa.ArrowException):
            continue
        done.append(pa.Table.from_arrays(arrays, names=node.names()))
        left.append(place)
    together = pa.concat_tables(done)
    values = {name: _within(rows, name, places, left) for name in rows.column_names}
    arrays = [part.of(values, len(left)) for part in parts]
    for name, array in zip(node.names(), arrays, strict=True):
        assert repr(array.to_pylist()) == repr(together[name].to_pylist()), "row by row is the same"
    return together, left


def _within(rows: pa.Table, name: str, places: list[int], left: list[int]) -> pa.Array:
    at = {place: number for number, place in enumerate(places)}
    return rows[name].combine_chunks().take(pa.array([at[place] for place in left], pa.int64()))


@pytest.mark.parametrize("sql", ON_THE_ENGINE)
def test_what_may_differ_is_left_to_the_engine(
    spark: Engine, columns: tuple[Column, ...], sql: str
) -> None:
    plan = translate(spark.session, f"SELECT rid, {sql} AS x FROM t", {"t": columns}).plan
    inputs = [(node.inputs()[0].columns, tree) for node, tree in trees_of(plan)]
    assert None in [compiled(tree, below) for below, tree in inputs]


@pytest.mark.parametrize("sql", ["int_1 / 0", "int_1 + 2147483647", "CAST(int_1 * 100 AS TINYINT)"])
def test_what_spark_refuses_is_not_answered(
    spark: Engine, columns: tuple[Column, ...], sql: str
) -> None:
    rows = ROWS.filter(pa.array([value == 12 for value in ROWS["int_1"].to_pylist()]))
    values = {name: rows[name].combine_chunks() for name in rows.column_names}
    plan = translate(spark.session, f"SELECT rid, {sql} AS x FROM t", {"t": columns}).plan
    parts = [compiled(tree, columns) for _, tree in trees_of(plan)]
    with pytest.raises((EngineNeeded, pa.ArrowException, AttributeError)):
        [part.of(values, rows.num_rows) for part in parts]  # type: ignore[union-attr]


def test_pools_have_all_types_that_are_compared() -> None:
    assert set(COMPARED) <= set(POOLS)
