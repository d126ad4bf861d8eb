"""Queries have the plans that are beside them; see `golden` for how these are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from everview.engines.engine import Engine
from tests.sql.catalyst.golden import PLANS, files, query_of, written


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_a_query_has_the_plan_that_is_beside_it(spark: Engine, file: Path) -> None:
    assert written(spark.session, query_of(file)) == file.read_text()


def test_equal_queries_have_equal_plans_whatever_was_planned_between(spark: Engine) -> None:
    rest, mod = (
        "SELECT id, pieces % 7 AS r FROM orders",
        "SELECT id, mod(pieces, 7) AS r FROM orders",
    )
    first = written(spark.session, rest)
    other = written(spark.session, mod)
    assert written(spark.session, rest) == first
    assert written(spark.session, mod) == other


def test_there_are_plans() -> None:
    assert len(list(PLANS.iterdir())) == len(files()) >= 30
