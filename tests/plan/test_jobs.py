"""Which operators are run ahead of others: those that are read often enough."""

from __future__ import annotations

import pyarrow as pa

from everview.plan.expressions import Lit
from everview.plan.jobs import MOST_TOGETHER, jobs
from everview.plan.nodes import Aggregate, Call, Constant, Filter, Join, Node, Source, Union
from everview.schema import Column
from tests.plan.trees import tree

ID = Column("id", pa.int64(), False)


def source(table: str = "t") -> Source:
    return Source((ID,), table, ("id",))


def distinct(below: Node) -> Aggregate:
    return Aggregate((ID,), below, ("id",), ())


def joined(left: Node, right: Node) -> Join:
    return Join((ID,), left, right, "semi", ("id",), ("id",), (False,), False)


def test_what_nobody_else_reads_is_run_in_one_job() -> None:
    found = jobs([distinct(distinct(source()))])
    assert (found.ahead, found.last) == ([], [[0]])
    assert found.largest == 4, "a source, two operators and the view"


def test_an_operator_with_many_readers_is_run_ahead() -> None:
    shared = distinct(distinct(source()))
    readers = [distinct(Filter((ID,), shared, tree(f"{{id}} > {i}"))) for i in range(4)]
    assert jobs(readers[:3]).ahead == [], "twice two operators more are less than a job"
    found = jobs(readers)
    assert found.ahead == [[shared]]
    assert found.last == [[0, 1, 2, 3]]
    assert found.largest == 4 * 3, "each reads what was given, groups it and writes it"


def test_readers_are_counted_through_what_keeps_no_state() -> None:
    shared = distinct(source())
    twice = Union((ID,), (shared, Filter((ID,), shared, tree("{id} > 1"))))
    assert jobs([joined(twice, twice)], worth=4).ahead == []
    assert jobs([joined(twice, twice)], worth=3).ahead == [[shared]], "it is read four times"


def test_a_chain_that_doubles_has_jobs_of_few_operators() -> None:
    top: Node = distinct(source())
    levels = [top]
    for _ in range(40):
        top = joined(top, top)
        levels.append(top)
    found = jobs(levels)
    assert found.largest <= 3 * len(levels), "as many as if no view read another"
    before = set[Node]()
    for part in found.ahead:
        for node in part:
            read = {one for one in node.walk() if one in {n for p in found.ahead for n in p}}
            assert read - {node} <= before
        before |= set(part)


def test_tables_that_did_not_change_give_nothing_to_run() -> None:
    shared = distinct(distinct(source("u")))
    plan = joined(joined(source(), shared), joined(source("w"), shared))
    constant = joined(plan, Constant((ID,), ((Lit("1", "BIGINT"),),)))
    assert jobs([plan], worth=1).ahead == [[shared]]
    assert jobs([plan], worth=1, changed=["t"]).ahead == []
    assert jobs([plan], changed=["t"]).largest == 4
    assert jobs([constant], changed=["t"]).largest == 5
    assert jobs([constant]).largest == jobs([plan]).largest + 2


def test_what_is_given_is_read_and_not_run() -> None:
    shared = distinct(distinct(source()))
    plan = joined(shared, Filter((ID,), shared, tree("{id} > 1")))
    assert jobs([plan], worth=1, stored=[shared.identity]).ahead == []
    assert jobs([plan], worth=1, stored=[shared.identity]).largest == 4


def test_what_nobody_reads_is_not_run_ahead() -> None:
    given: Node = source()
    for i in range(200):
        given = joined(given, source(f"t{i}"))
    plan = given
    for i in range(320):
        plan = joined(plan, source(f"u{i}"))
    found = jobs([plan], stored=[given.identity])
    assert found.ahead
    assert not {node for part in found.ahead for node in part} & {*given.walk()}


def test_no_job_is_too_large() -> None:
    """A union of many groupings, a hundred joins within one another, and a thousand views."""
    groups = [
        Aggregate((ID,), source(f"t{i}"), ("id",), (Call("count", None),)) for i in range(200)
    ]
    wide = jobs([Union((ID,), tuple(groups))])
    assert wide.largest <= MOST_TOGETHER
    assert [node for part in wide.ahead for node in part] == groups
    deep: Node = source()
    for i in range(400):
        deep = joined(deep, source(f"t{i}"))
    assert jobs([deep]).largest <= MOST_TOGETHER
    many = jobs([distinct(source(f"t{i}")) for i in range(1000)])
    assert many.largest <= MOST_TOGETHER
    assert [at for part in many.last for at in part] == list(range(1000))
