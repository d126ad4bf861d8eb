"""What it costs to plan a view: questions to Spark's JVM, which are counted and not timed."""

from __future__ import annotations

import pytest
from py4j.java_gateway import GatewayClient

import everview as ev
from everview.engines.engine import Engine


def questions(db: ev.Database, aggregates: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the JVM is asked while a view of so many aggregates is planned."""
    asked = 0
    send = GatewayClient.send_command

    def counted(*args: object, **options: object) -> object:
        nonlocal asked
        asked += not str(args[1]).startswith("m\n")  # which lets go of an object
        return send(*args, **options)

    sums = ", ".join(f"sum(a + {i}) AS s{i}" for i in range(aggregates))
    with monkeypatch.context() as patched:
        patched.setattr(GatewayClient, "send_command", counted)
        db.explain(f"CREATE MATERIALIZED VIEW v AS SELECT b, {sums} FROM t GROUP BY b")
    return asked


def test_each_further_aggregate_of_a_view_costs_the_same_and_little(
    spark: Engine, db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, a BIGINT, b STRING)")
    questions(db, 1, monkeypatch)
    few, more, many = (questions(db, count, monkeypatch) for count in (10, 30, 90))
    for_each = (more - few) / 20
    assert for_each < 300
    assert (many - more) / 60 < for_each * 1.05
