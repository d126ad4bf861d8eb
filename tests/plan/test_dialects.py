"""One text for two engines."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.errors import OutOfReach, UnsupportedSql
from everview.plan.dialects import checked_on_sail, either, not_on_sail, on_sail, on_spark
from everview.plan.nodes import Constant, Project
from everview.reach import check_node
from everview.schema import Column


def test_each_engine_is_asked_in_its_own_words() -> None:
    text = f"CAST({either('(a + b)', 'try_add(a, b)')} AS INT) > {either('f(c)', 'g(c)')}"
    assert on_spark(text) == "CAST((a + b) AS INT) > f(c)"
    assert on_sail(text) == "CAST(try_add(a, b) AS INT) > g(c)"


def test_texts_for_both_may_be_within_one_another() -> None:
    inner = either("f('*/')", "g('/* */')")
    outer = either(f"abs({inner})", f"absolute({inner})")
    assert on_spark(outer) == "abs(f('*/'))"
    assert on_sail(outer) == "absolute(g('/* */'))"
    assert on_sail(f"x + {outer}") == "x + absolute(g('/* */'))"


def test_words_that_are_the_same_are_said_once() -> None:
    assert either("a", "a") == "a"


def test_what_is_for_spark_alone_is_refused_on_sail_wherever_it_stands() -> None:
    refused = not_on_sail("hash(d)", "Sail hashes DECIMAL otherwise")
    text = f"{either(f'f({refused})', f'g({refused})')} > 1"
    assert on_spark(text) == "f(hash(d)) > 1"
    with pytest.raises(UnsupportedSql, match=r"Sail hashes DECIMAL otherwise.*engine spark"):
        checked_on_sail(text)
    assert checked_on_sail("a + b") == "a + b"


def test_what_sail_is_asked_is_checked_for_what_it_reaches_too() -> None:
    a = Column("a", pa.string())
    below = Constant((a,), ())
    check_node(Project((a,), below, (either("upper(a)", "lower(a)"),)))
    check_node(Project((a,), below, (not_on_sail("upper(a)", "it's of no use"),)))
    for text in (either("a", "reflect('A', 'b')"), either("reflect('A', 'b')", "a")):
        with pytest.raises(OutOfReach, match="reflect"):
            check_node(Project((a,), below, (text,)))


def test_texts_of_users_that_look_alike_stay_as_they_are() -> None:
    text = "concat('/*on spark*/', a, '/*on sail: b*/')"
    assert (on_spark(text), on_sail(text)) == (text, text)
