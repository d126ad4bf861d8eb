"""Expressions are values: what they read, what they become over other columns, and how they are
stored."""

from __future__ import annotations

import json

import pytest

from everview.plan.expressions import (
    NOT_NULL,
    Apply,
    Either,
    Lit,
    Ref,
    Refused,
    Tree,
    Variable,
    Written,
    all_of,
    call,
    cast,
    column_of,
    columns_of,
    conjuncts,
    named_struct,
    not_null_columns,
    on_spark,
    operation,
    sql,
    string,
    substituted,
)

A, B, ONE = Ref("a"), Ref("b"), Lit("1", "INT")
SUM = sql("({0} + {1})", A, ONE)
EVERY = Either(
    sql("filter({0}, x -> {1})", B, sql("({0} > {1})", Variable("x"), SUM)),
    call("coalesce", Refused("Sail does otherwise"), Ref("c")),
)


def test_equal_trees_are_one_value_wherever_they_were_made() -> None:
    again = sql("({0} + {1})", Ref("a"), Lit("1", "INT"))
    assert again == SUM
    assert SUM is not again
    assert {SUM: 1}[again] == 1
    others: list[Tree] = [Lit("1", "BIGINT"), Lit("2", "INT"), Ref("1"), Written("1"), sql("1")]
    assert len({ONE, *others}) == 6
    assert sql("{0} - {1}", A, B) != sql("{0} - {1}", B, A)


def test_a_tree_comes_back_from_json_as_it_was() -> None:
    stored = json.dumps(EVERY.to_json())
    assert Tree.from_json(json.loads(stored)) == EVERY
    assert json.dumps(Tree.from_json(json.loads(stored)).to_json()) == stored


def test_what_a_tree_has_twice_is_stored_once() -> None:
    shared = call("upper", A)
    apart = sql("{0} || {1}", call("upper", Ref("a")), call("upper", Ref("a")))
    assert sql("{0} || {1}", shared, shared).to_json() == apart.to_json()
    assert len(apart.to_json()) == 3
    wide: Tree = A
    for _ in range(60):
        wide = sql("({0} + {1})", wide, wide)
    assert len(wide.to_json()) == 61
    assert columns_of(wide) == {"a"}


def test_a_tree_may_be_deep() -> None:
    deep: Tree = A
    for i in range(5_000):
        deep = sql("({0} + {1})", deep, Lit(str(i), "INT"))
    assert Tree.from_json(deep.to_json()) == deep
    assert on_spark(substituted(deep, {"a": B})).startswith("(" * 5_000 + "`b` + 0)")


def test_columns_are_those_of_both_engines_and_not_other_words() -> None:
    assert columns_of(EVERY) == {"a", "b", "c"}
    assert columns_of(string("a b c"), named_struct([("a", B)])) == {"b"}
    assert columns_of() == set()


def test_a_column_is_known_as_such() -> None:
    assert column_of(A) == "a"
    assert [column_of(tree) for tree in (ONE, SUM, Variable("a"), EVERY)] == [None] * 4
    assert [column_of(Written(text)) for text in ("a", "`a``b c`", "a + 1", "1")] == [
        *("a", "a`b c", None, None)
    ]


def test_columns_are_substituted_by_what_they_are_computed_from() -> None:
    given = {"a": Ref("b"), "b": sql("{0} OR {1}", A, B), "c": ONE}
    found = substituted(sql("{0} AND {1} = {2}", A, B, Ref("c")), given)
    assert on_spark(found) == "`b` AND (`a` OR `b`) = 1"
    assert substituted(SUM, {"other": ONE}) is SUM
    both = substituted(Either(A, call("f", A)), {"a": B})
    assert both == Either(B, call("f", B))


def test_a_text_of_old_is_not_taken_apart() -> None:
    old = Written("a + 1")
    assert columns_of(sql("{0} > {1}", old, B)) == {"a", "b", "1"}
    assert substituted(old, {"b": ONE}) is old
    with pytest.raises(ValueError, match=r"a \+ 1"):
        substituted(old, {"a": ONE})


def test_conditions_are_joined_and_parted() -> None:
    known, more = sql("({0} IS NOT NULL)", A), sql("({0} > {1})", B, ONE)
    assert conjuncts(all_of([known, more])) == [known, more]
    assert all_of([known]) is known
    assert conjuncts(known) == [known]
    inner = sql("({0} AND {1})", known, more)
    assert conjuncts(inner) == [inner]


def test_operations_are_read_without_parentheses() -> None:
    assert operation(sql("({0} = {1})", A, ONE)) == "{0} = {1}"
    assert operation(sql("{0} = {1}", A, ONE)) == "{0} = {1}"
    assert operation(call("f", A)) == "f({0})"
    assert operation(A) == operation(Written("(a = 1)")) == ""


def test_columns_that_are_not_null_are_read_from_conditions() -> None:
    known = [sql(f"({NOT_NULL})", one) for one in (A, B)]
    assert not_null_columns(all_of(known)) == ["a", "b"]
    assert not_null_columns(all_of([*known, SUM])) is None
    assert not_null_columns(sql(NOT_NULL, SUM)) is None
    assert not_null_columns(Written("(a IS NOT NULL) AND (`b` IS NOT NULL)")) == ["a", "b"]
    assert not_null_columns(Written("(a IS NOT NULL) AND (b > 1)")) is None


def test_signs_that_are_meant_stay_in_forms() -> None:
    assert on_spark(cast(A, "STRUCT<`{0}`: INT>")) == "CAST(`a` AS STRUCT<`{0}`: INT>)"
    assert on_spark(string("it's {0}, \\ {")) == "'it\\'s {0}, \\\\ {'"
    assert Apply("'{{}}' || {0}", (A,)).parts() == (A,)
    assert on_spark(Apply("'{{}}' || {0}", (A,))) == "'{}' || `a`"
