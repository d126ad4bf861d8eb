"""Catalyst's SQL read as forms, without Catalyst."""

from __future__ import annotations

import pytest

from everview.plan.expressions import Ref, on_spark
from everview.sql.catalyst.expressions import _items
from everview.sql.catalyst.forms import _applied, _form

TREES = [Ref("a"), Ref("b"), Ref("c")]


def marked(text: str) -> str:
    return text.replace("<", "\ue002").replace(">", "\ue002")


@pytest.mark.parametrize(
    ("text", "form", "asked"),
    [
        ("(<0> + <1>)", "({0} + {1})", "(`a` + `b`)"),
        ("TRIM(BOTH <1> FROM <0>)", "TRIM(BOTH {0} FROM {1})", "TRIM(BOTH `b` FROM `a`)"),
        ("f(<2>, <2>)", "f({0}, {0})", "f(`c`, `c`)"),
        ("from_json(<0>, '{0}')", "from_json({0}, '{{0}}')", "from_json(`a`, '{0}')"),
        ("pi()", "pi()", "pi()"),
    ],
)
def test_marks_become_places_in_the_order_they_come(text: str, form: str, asked: str) -> None:
    found = _form(marked(text))
    assert found[0] == form
    assert on_spark(_applied(found, TREES)) == asked


def test_children_that_a_text_leaves_out_are_no_arguments() -> None:
    assert _applied(_form(marked("f(<1>)")), TREES).arguments == (Ref("b"),)


@pytest.mark.parametrize(
    ("listed", "items"),
    [
        ("1", ["1"]),
        ("1L, 2L, -3L", ["1L", "2L", "-3L"]),
        ("'a', 'b, c', 'it\\'s', '\\\\', '('", ["'a'", "'b, c'", "'it\\'s'", "'\\\\'", "'('"]),
        ("CAST(NULL AS DECIMAL(3,1)), 1.5BD", ["CAST(NULL AS DECIMAL(3,1))", "1.5BD"]),
        ("DATE '2020-01-01', DATE '2020-01-02'", ["DATE '2020-01-01'", "DATE '2020-01-02'"]),
    ],
)
def test_lists_of_literals_are_taken_apart(listed: str, items: list[str]) -> None:
    assert _items(listed) == items
