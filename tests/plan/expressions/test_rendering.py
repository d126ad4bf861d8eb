"""One tree for two engines."""

from __future__ import annotations

import pyarrow as pa
import pytest

from everview.errors import OutOfReach, UnsupportedSql
from everview.plan.expressions import (
    Either,
    Lit,
    Ref,
    Tree,
    Variable,
    both,
    call,
    cast,
    either,
    not_on_sail,
    on_sail,
    on_spark,
    readable,
    sql,
    string,
)
from everview.plan.nodes import Constant, Project, Refresh, Source
from everview.reach import check_node
from everview.schema import Column

A, B = Ref("a"), Ref("b")


def test_each_engine_is_asked_in_its_own_words() -> None:
    added = either(sql("({0} + {1})", A, B), call("try_add", A, B))
    tree = sql("{0} > {1}", cast(added, "INT"), either(call("f", A), call("g", A)))
    assert on_spark(tree) == "CAST((`a` + `b`) AS INT) > f(`a`)"
    assert on_sail(tree) == "CAST(try_add(`a`, `b`) AS INT) > g(`a`)"


def test_words_for_both_may_be_within_one_another() -> None:
    inner = either(call("f", string("*/")), call("g", string("/* */")))
    outer = either(call("abs", inner), call("absolute", inner))
    assert on_spark(outer) == "abs(f('*/'))"
    assert on_sail(outer) == "absolute(g('/* */'))"
    assert isinstance(outer, Either)
    assert not any(isinstance(part, Either) for side in outer.parts() for part in side.walk())


def test_words_that_are_the_same_are_said_once() -> None:
    assert either(call("f", A), call("f", Ref("a"))) == call("f", A)


def test_what_is_for_spark_alone_is_refused_on_sail_wherever_it_stands() -> None:
    refused = not_on_sail(call("hash", A), "Sail hashes DECIMAL otherwise")
    tree = sql("{0} > 1", either(call("f", refused), call("g", refused)))
    assert on_spark(tree) == "f(hash(`a`)) > 1"
    assert both(tree) == ("f(hash(`a`)) > 1", "g(NULL) > 1")
    with pytest.raises(UnsupportedSql, match=r"Sail hashes DECIMAL otherwise.*engine spark"):
        on_sail(tree)


def test_what_sail_is_not_asked_is_not_refused() -> None:
    tree = either(call("f", not_on_sail(A, "Sail does otherwise")), call("g", B))
    assert on_sail(tree) == "g(`b`)"


def test_names_are_quoted_for_engines_and_for_people_where_they_must_be() -> None:
    odd = Ref("na`me 1")
    tree = sql("{0} || {1} || {2}", A, odd, Variable("x"))
    assert on_spark(tree) == on_sail(tree) == "`a` || `na``me 1` || x"
    assert readable(tree) == "a || `na``me 1` || x"


def test_people_read_the_words_of_spark() -> None:
    assert readable(either(sql("{0} + {1}", A, Lit("1", "INT")), call("g", A))) == "a + 1"


def test_what_both_engines_are_asked_is_checked_for_what_it_reaches() -> None:
    a = Column("a", pa.string())
    below = Constant((a,), ())
    check_node(Project((a,), below, (either(call("upper", A), call("lower", A)),)))
    check_node(Project((a,), below, (not_on_sail(call("upper", A), "it's of no use"),)))
    reaching = call("reflect", string("A"), string("b"))
    hostile: list[Tree] = [
        *(either(A, reaching), either(reaching, A), Lit("reflect('A', 'b')", "STRING")),
        *(sql("upper({0}) /* {1} */", A, B), cast(A, "INT) + (SELECT 1")),
    ]
    for tree in hostile:
        with pytest.raises(OutOfReach):
            check_node(Project((a,), below, (tree,)))
    with pytest.raises(OutOfReach, match="reflect"):
        check_node(Constant((a,), ((reaching,),)))


def test_whole_queries_are_checked_as_each_engine_is_asked_them() -> None:
    a = Column("a", pa.string())
    source, fine = Source((a,), "t", ("a",)), sql("SELECT a FROM t")
    check_node(Refresh((a,), (source,), fine))
    check_node(Refresh((a,), (source,), not_on_sail(fine, "Sail does otherwise")))
    for query in (sql("SELECT a FROM u"), either(fine, sql("SELECT reflect('A', 'b') FROM t"))):
        with pytest.raises(OutOfReach):
            check_node(Refresh((a,), (source,), query))
