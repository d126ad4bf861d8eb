"""push_conditions_to_sources: before and after."""

from __future__ import annotations

import pytest

from everview.plan.conditions import Condition
from everview.plan.expressions import Tree, Written, all_of, sql
from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Filter, Node, Source
from everview.plan.rules.push_conditions_to_sources import push_conditions_to_sources
from everview.schema import Column, arrow_type
from tests.plan.trees import tree

TYPES = {
    "n": "INT",
    "m": "INT",
    "l": "BIGINT",
    "p": "DECIMAL(12,2)",
    "d": "DATE",
    "s": "STRING",
    "f": "DOUBLE",
    "t": "TIMESTAMP",
    "z": "BOOLEAN",
    "w": "DECIMAL(14,2)",
}
COLUMNS = tuple(Column(f"{name}_2", arrow_type(type_)) for name, type_ in TYPES.items())
SOURCE = Source(COLUMNS, "t", tuple(TYPES))
FACTS = Facts({"t": TableFacts(("n",))})


def filtered(*conditions: Tree) -> Filter:
    return Filter(COLUMNS, SOURCE, all_of(conditions))


def negated(condition: str) -> Tree:
    return sql("(NOT {0})", tree(condition))


def pushed(*where: Condition) -> Source:
    return Source(COLUMNS, "t", tuple(TYPES), where=where)


@pytest.mark.parametrize(
    ("given", "condition"),
    [
        (tree("({n_2} = [15 INT])"), Condition("n", "=", ("15",))),
        (tree("({n_2} >= [-15 INT])"), Condition("n", ">=", ("-15",))),
        (tree("({l_2} < [15L BIGINT])"), Condition("l", "<", ("15",))),
        (negated("({n_2} = [15 INT])"), Condition("n", "<>", ("15",))),
        (tree("({p_2} <= [-0.05BD DECIMAL(12,2)])"), Condition("p", "<=", ("-0.05",))),
        (tree("({p_2} > [3BD DECIMAL(1,0)])"), Condition("p", ">", ("3",))),
        (tree("({d_2} > [DATE '1995-03-15' DATE])"), Condition("d", ">", ("1995-03-15",))),
        (tree("({s_2} = ['a AND (b' STRING])"), Condition("s", "=", ("a AND (b",))),
        (tree("({s_2} IN (['a' STRING], ['b' STRING]))"), Condition("s", "IN", ("a", "b"))),
        (tree("({n_2} < {m_2})"), Condition("n", "<", other="m")),
        (tree("({f_2} IS NULL)"), Condition("f", "IS NULL")),
        (tree("({t_2} IS NOT NULL)"), Condition("t", "IS NOT NULL")),
        (negated("({t_2} IS NULL)"), Condition("t", "IS NOT NULL")),
        (tree("({s_2} < ['ü' STRING])"), Condition("s", "<", ("ü",))),
    ],
    ids=str,
)
def test_what_arrow_answers_as_spark_does_is_a_condition(given: Tree, condition: Condition) -> None:
    assert push_conditions_to_sources(filtered(given), FACTS) == pushed(condition)


@pytest.mark.parametrize(
    "given",
    [
        tree("({f_2} > [1.0D DOUBLE])"),
        tree("({f_2} = [1 INT])"),
        tree("({t_2} > [TIMESTAMP '2020-01-01 00:00:00' TIMESTAMP])"),
        tree("({d_2} > ['2020-01-01' STRING])"),
        tree("({d_2} > [DATE '+12020-01-01' DATE])"),
        tree("({s_2} = [1 INT])"),
        tree("({s_2} = ['it\\'s' STRING])"),
        tree("({n_2} = [3000000000L BIGINT])"),
        tree("({n_2} = ['1' STRING])"),
        tree("({n_2} = [1.5BD DECIMAL(2,1)])"),
        tree("({p_2} = [0.005BD DECIMAL(3,3)])"),
        tree("({p_2} = [12345678901.00BD DECIMAL(13,2)])"),
        tree("({p_2} = {w_2})"),
        tree("({n_2} = {l_2})"),
        sql("({0} = {1})", tree("{n_2}"), tree("CAST(['1' STRING] AS INT)")),
        tree("({n_2} <=> [1 INT])"),
        negated("({n_2} <=> [1 INT])"),
        negated("({n_2} IN ([1 INT], [2 INT]))"),
        negated("({n_2} < [1 INT])"),
        tree("({n_2} IN ([1 INT], [NULL INT]))"),
        tree("({n_2} = [CAST(NULL AS INT) INT])"),
        sql("({0} = {1})", tree("({n_2} + [1 INT])"), tree("[2 INT]")),
        sql("({0} OR {1})", tree("({n_2} = [1 INT])"), tree("({n_2} = [2 INT])")),
        tree("{z_2}"),
        tree("({z_2} IS TRUE)"),
        tree("([1 INT] < {n_2})"),
        tree("{s_2} LIKE ['a%' STRING]"),
        tree("startswith({s_2}, ['a' STRING])"),
        tree("{n_2} BETWEEN [1 INT] AND [2 INT]"),
        tree("({other} = [1 INT])"),
        Written("(n_2 = 15)"),
    ],
    ids=str,
)
def test_anything_else_stays_with_the_engine(given: Tree) -> None:
    assert push_conditions_to_sources(filtered(given), FACTS) == filtered(given)


def test_what_can_not_be_pushed_stays_as_it_was() -> None:
    like, real = tree("({s_2} LIKE ['x AND (y' STRING])"), tree("({f_2} > [0.0D DOUBLE])")
    given = filtered(tree("({n_2} IS NOT NULL)"), like, tree("({n_2} > [1 INT])"), real)
    where = (Condition("n", ">", ("1",)),)
    after = Filter(COLUMNS, pushed(*where), all_of([like, real]))
    assert push_conditions_to_sources(given, FACTS) == after


def test_conditions_come_in_one_order() -> None:
    known, same = tree("({n_2} IS NOT NULL)"), tree("({s_2} = ['a' STRING])")
    less = tree("({m_2} < [3 INT])")
    found = push_conditions_to_sources(filtered(known, same, less), FACTS)
    assert isinstance(found, Source)
    assert len(found.where) == 3
    assert found == push_conditions_to_sources(filtered(less, known, same), FACTS)


def test_a_comparison_says_that_its_columns_are_not_null() -> None:
    known = [tree(f"({{{name}_2}} IS NOT NULL)") for name in "nms"]
    where = (Condition("n", "<", other="m"), Condition("s", "IS NOT NULL"))
    given = filtered(*known, tree("({n_2} < {m_2})"))
    assert push_conditions_to_sources(given, FACTS) == pushed(*where)


def test_nothing_is_pushed_into_a_view() -> None:
    before: Node = filtered(tree("({n_2} = [15 INT])"))
    assert push_conditions_to_sources(before, Facts()) == before
