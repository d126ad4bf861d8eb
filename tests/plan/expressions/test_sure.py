"""Which expressions have a value for every row."""

from __future__ import annotations

import pytest

from everview.plan.expressions import Either, Lit, Ref, Tree, cast, is_sure, sql

A, B, TEXT = Ref("a"), Ref("b"), Ref("text")
TWO, WORD = Lit("2", "INT"), Lit("'x'", "STRING")
CASE = "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} ELSE {4} END"


@pytest.mark.parametrize(
    "tree",
    [
        A,
        TWO,
        sql("({0} * {1})", A, sql("({0} - {1})", TWO, B)),
        sql("({0} / {1})", A, TWO),
        sql("({0} AND {1} AND {2})", sql("({0} <= {1})", A, B), sql("({0} IS NULL)", A), B),
        sql("{0} IN ({1}, {2})", A, TWO, B),
        sql(CASE, sql("({0} LIKE {1})", TEXT, WORD), A, sql("(NOT {0})", B), B, TWO),
        cast(sql(CASE, sql("startswith({0}, {1})", TEXT, WORD), A, B, A, B), "DECIMAL(12,2)"),
        cast(A, "DATE"),
        Either(sql("({0} + {1})", A, B), sql("raise_error({0})", WORD)),
    ],
)
def test_these_are(tree: Tree) -> None:
    assert is_sure(tree, {"text"})


@pytest.mark.parametrize(
    "tree",
    [
        sql("({0} / {1})", A, B),
        sql("({0} / {1})", A, Lit("0.0", "DECIMAL(2,1)")),
        sql("({0} % {1})", A, TWO),
        sql("({0} + {1})", A, sql("({0} div {1})", A, B)),
        sql("element_at({0}, {1})", A, B),
        sql("raise_error({0})", WORD),
        cast(TEXT, "DATE"),
        cast(sql("substring({0}, {1}, {2})", A, TWO, TWO), "INT"),
        cast(sql(CASE, A, TWO, B, TEXT, TWO), "DECIMAL(12,2)"),
        cast(sql("coalesce({0}, {1})", A, WORD), "BIGINT"),
        Either(cast(TEXT, "INT"), A),
    ],
)
def test_these_may_fail(tree: Tree) -> None:
    assert not is_sure(tree, {"text"})
