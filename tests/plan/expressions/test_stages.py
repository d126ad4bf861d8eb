"""Long expressions in stages: nothing is computed that was not, and little twice."""

from __future__ import annotations

import pytest

import everview as ev
from everview.plan.expressions import (
    Apply,
    Ref,
    Stage,
    Tree,
    Variable,
    call,
    on_sail,
    sql,
    staged,
    stages,
    substituted,
)
from everview.plan.nodes import Generate


@pytest.fixture
def all_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also short expressions."""
    staged.cache_clear()
    monkeypatch.setattr(stages, "_LONG", 0)
    monkeypatch.setattr(stages, "_SHORT", 0)


def inlined(computed: tuple[Stage, ...], tree: Tree) -> str:
    """The text with the columns of stages put back in their places, less parentheses."""
    for stage in reversed(computed):
        tree = substituted(tree, dict(stage))
    return on_sail(tree).replace("(", "").replace(")", "")


def test_short_expressions_stay_as_they_are() -> None:
    twice = sql("{0} + {0}", call("abs", Ref("a")))
    assert staged((twice,), ("stage_1",)) == ((), (twice,))


def test_text_that_doubles_with_each_level_becomes_a_column_for_each() -> None:
    tree: Tree = Ref("a")
    for _ in range(40):  # a text of 2 ** 40 parts
        tree = sql("(CASE WHEN abs({0}) > 1 THEN {0} ELSE {0} % 7 END)", call("abs", tree))
    computed, (last,) = staged((tree,), ("stage_1",))
    assert len(on_sail(last)) < 200
    assert sum(len(on_sail(column)) for stage in computed for _, column in stage) < 8_000
    names = [name for stage in computed for name, _ in stage]
    assert len(names) == len(set(names)) == 39
    assert all(name.startswith("stage__") for name in names)


@pytest.mark.usefixtures("all_staged")
def test_stages_mean_what_the_trees_meant() -> None:
    inner = call("abs", Ref("a"))
    outer = call("sqrt", sql("({0} + {1})", inner, inner))
    trees = (sql("({0} * {1})", outer, inner), sql("({0} - {0})", outer), Ref("a"))
    computed, results = staged(trees, ("stage_1",))
    assert [len(stage) for stage in computed] == [1, 1]
    assert [inlined(computed, tree) for tree in results] == [inlined((), tree) for tree in trees]


@pytest.mark.usefixtures("all_staged")
@pytest.mark.parametrize(
    "form",
    [
        *("CASE WHEN {1} > 0 THEN {0} WHEN {1} < 9 THEN {0} END", "coalesce({1}, {0}, {0})"),
        *("if({1} > 0, {0}, {0})", "({1} AND {0} AND {0})", "({1} OR {0} OR {0})"),
        *("CASE {1} WHEN 1 THEN {0} ELSE {0} END", "(coalesce({1}, {0}) + coalesce({1}, {0}))"),
    ],
)
def test_what_may_fail_is_not_computed_for_rows_that_do_not_need_it(form: str) -> None:
    failing = call("raise_error", Ref("a"))
    tree = sql(form, failing, Ref("b"))
    assert staged((tree,), ("stage_1",)) == ((), (tree,))
    always = sql("({0} + {1})", failing, tree)
    computed, (result,) = staged((always,), ("stage_1",))
    assert [column for stage in computed for _, column in stage] == [failing]
    assert inlined(computed, result) == inlined((), always)


@pytest.mark.usefixtures("all_staged")
@pytest.mark.parametrize(
    "clause",
    [
        *(sql("WHEN {0} THEN 1", Ref("a")), sql("ELSE {0}", Ref("a"))),
        *(sql("(x, y) -> ({0})", Ref("a")), sql("DISTINCT {0}", Ref("a"))),
        *(call("f", Variable("x")), sql("{0}.`b`", Ref("a")), sql("f({0}) OVER (g)", Ref("a"))),
    ],
)
def test_clauses_and_what_reads_variables_stay_where_they_are(clause: Tree) -> None:
    tree = Apply("f({0}, {1})", (clause, clause))
    assert staged((tree,), ("stage_1",)) == ((), (tree,))


@pytest.mark.usefixtures("spark")
def test_windows_that_slide_are_short(db: ev.Database) -> None:
    """Spark's plan repeats the time in them, and each check on Sail repeats it again."""
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT)")
    day = "window(timestamp_seconds(a * 900), '1 day', '6 hours')"
    days = f"SELECT {day}.start AS w, count(*) AS n FROM t GROUP BY {day}"
    db.sql(f"CREATE MATERIALIZED VIEW v AS {days}")
    (node,) = [node for node in db.view("v").plan.walk() if isinstance(node, Generate)]
    assert len(on_sail(node.generator)) > 100_000
    computed, (generator,) = staged((node.generator,), ("stage_1",))
    assert len(on_sail(generator)) < 10_000
    assert all(len(on_sail(column)) < 3_000 for stage in computed for _, column in stage)
