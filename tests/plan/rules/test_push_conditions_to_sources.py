"""push_conditions_to_sources: before and after."""

from __future__ import annotations

import pytest

from everview.plan.conditions import Condition
from everview.plan.facts import Facts, TableFacts
from everview.plan.nodes import Filter, Node, Source
from everview.plan.rules.push_conditions_to_sources import push_conditions_to_sources
from everview.schema import Column, arrow_type

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


def filtered(condition: str) -> Filter:
    return Filter(COLUMNS, SOURCE, condition)


def pushed(*where: Condition) -> Source:
    return Source(COLUMNS, "t", tuple(TYPES), where=where)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("(n_2 = 15)", Condition("n", "=", ("15",))),
        ("(n_2 >= -15)", Condition("n", ">=", ("-15",))),
        ("(l_2 < 15L)", Condition("l", "<", ("15",))),
        ("(NOT (n_2 = 15))", Condition("n", "<>", ("15",))),
        ("(p_2 <= -0.05BD)", Condition("p", "<=", ("-0.05",))),
        ("(p_2 > 3BD)", Condition("p", ">", ("3",))),
        ("(d_2 > DATE '1995-03-15')", Condition("d", ">", ("1995-03-15",))),
        ("(s_2 = 'a AND (b')", Condition("s", "=", ("a AND (b",))),
        ("(s_2 IN ('a', 'b'))", Condition("s", "IN", ("a", "b"))),
        ("(n_2 < m_2)", Condition("n", "<", other="m")),
        ("(f_2 IS NULL)", Condition("f", "IS NULL")),
        ("(t_2 IS NOT NULL)", Condition("t", "IS NOT NULL")),
        ("(`s_2` < 'ü')", Condition("s", "<", ("ü",))),
    ],
)
def test_what_arrow_answers_as_spark_does_is_a_condition(text: str, condition: Condition) -> None:
    assert push_conditions_to_sources(filtered(text), FACTS) == pushed(condition)


@pytest.mark.parametrize(
    "text",
    [
        "(f_2 > 1.0D)",
        "(f_2 = 1)",
        "(t_2 > TIMESTAMP '2020-01-01 00:00:00')",
        "(d_2 > '2020-01-01')",
        "(d_2 > DATE '+12020-01-01')",
        "(s_2 = 1)",
        "(s_2 = 'it\\'s')",
        "(n_2 = 3000000000L)",
        "(n_2 = '1')",
        "(n_2 = 1.5BD)",
        "(p_2 = 0.005BD)",
        "(p_2 = 12345678901.00BD)",
        "(p_2 = w_2)",
        "(n_2 = l_2)",
        "(n_2 = CAST('1' AS INT))",
        "(n_2 <=> 1)",
        "(NOT n_2 <=> 1)",
        "(NOT (n_2 IN (1, 2)))",
        "(n_2 IN (1, NULL))",
        "(n_2 = NULL)",
        "((n_2 + 1) = 2)",
        "((n_2 = 1) OR (n_2 = 2))",
        "(NOT ((n_2 = 1) AND (m_2 = 2)))",
        "z_2",
        "(z_2 IS TRUE)",
        "(1 < n_2)",
        "s_2 LIKE 'a%'",
        "startswith(s_2, 'a')",
        "CASE WHEN n_2 = 1 AND m_2 = 2 THEN true ELSE false END",
        "n_2 BETWEEN 1 AND 2",
        "something that can't be read (",
    ],
)
def test_anything_else_stays_with_the_engine(text: str) -> None:
    assert push_conditions_to_sources(filtered(text), FACTS) == filtered(text)


def test_what_can_not_be_pushed_stays_as_it_was_written() -> None:
    text = "(n_2 IS NOT NULL) AND (s_2 LIKE 'x AND (y') AND (n_2 > 1) AND (f_2 > 0.0D)"
    where = (Condition("n", ">", ("1",)),)
    after = Filter(COLUMNS, pushed(*where), "(s_2 LIKE 'x AND (y') AND (f_2 > 0.0D)")
    assert push_conditions_to_sources(filtered(text), FACTS) == after


def test_conditions_come_in_one_order() -> None:
    one = filtered("(n_2 IS NOT NULL) AND (s_2 = 'a') AND (m_2 < 3)")
    other = filtered("(m_2 < 3) AND (n_2 IS NOT NULL) AND (s_2 = 'a')")
    found = push_conditions_to_sources(one, FACTS)
    assert isinstance(found, Source)
    assert len(found.where) == 3
    assert found == push_conditions_to_sources(other, FACTS)


def test_a_comparison_says_that_its_columns_are_not_null() -> None:
    text = "(n_2 IS NOT NULL) AND (m_2 IS NOT NULL) AND (s_2 IS NOT NULL) AND (n_2 < m_2)"
    where = (Condition("n", "<", other="m"), Condition("s", "IS NOT NULL"))
    assert push_conditions_to_sources(filtered(text), FACTS) == pushed(*where)


def test_nothing_is_pushed_into_a_view() -> None:
    before: Node = filtered("(n_2 = 15)")
    assert push_conditions_to_sources(before, Facts()) == before
