"""Which task takes which slots may change in every epoch, and views are the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.catalog import EPOCH, INTENT, VIEWS, ViewRecord
from everview.compute.hashing import hash_of
from everview.engines.engine import Engine
from everview.maintain import dealing, epochs
from everview.programs import workers
from everview.programs.step import Step
from everview.ring.ring import unevenness
from everview.stores.embedded.shard import EmbeddedShard

VIEWS_OF = {
    "spend": "SELECT customer, count(*) AS n, sum(amount) AS s FROM orders GROUP BY customer",
    "named": "SELECT o.id, c.name, o.amount FROM orders o LEFT JOIN customers c "
    "ON o.customer = c.id",
    "by_name": "SELECT c.name, max(o.amount) AS most, count(DISTINCT o.customer) AS n "
    "FROM orders o JOIN customers c ON o.customer = c.id GROUP BY c.name",
    "best": "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 5",
    "above": "SELECT id, amount FROM orders WHERE amount > (SELECT avg(amount) FROM orders)",
    "places": "SELECT id, rank() OVER (PARTITION BY customer ORDER BY amount) AS r FROM orders",
    "lonely": "SELECT id FROM customers c WHERE NOT EXISTS "
    "(SELECT 1 FROM orders o WHERE o.customer = c.id)",
    "overall": "SELECT count(*) AS n, sum(amount) AS s FROM orders",
}
Deal = Callable[..., tuple[int, ...]]


def shop(path: Path, engine: Engine) -> ev.Database:
    db = ev.open(path, create=True)
    db.engines.use(engine)
    db.sql("CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING)")
    db.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, amount DECIMAL(12,2))")
    db.table("customers").put([{"id": i, "name": f"n{i % 7}"} for i in range(40)])
    change(db, random.Random(0), 300)
    for name, query in VIEWS_OF.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    db.maintain()
    return db


def change(db: ev.Database, chance: random.Random, number: int) -> None:
    rows = [
        {
            "id": chance.randrange(500),
            "customer": chance.choice([None, *range(50)]),
            "amount": chance.choice([None, chance.randrange(-99, 99)]),
        }
        for _ in range(number)
    ]
    db.table("orders").put(list({row["id"]: row for row in rows}.values()))
    db.table("orders").delete(list({chance.randrange(500) for _ in range(number // 5)}))
    db.table("customers").put([{"id": chance.randrange(50), "name": f"n{chance.randrange(7)}"}])


def assert_equal(db: ev.Database) -> None:
    for name in VIEWS_OF:
        assert db.verify(name).equal, name


def dealt_at_random(monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> list[Any]:
    """Lets every epoch deal slots out to a random number of tasks; gives what was dealt."""
    dealt: list[Any] = []

    def deal(store: Any, views: Any, step: Step, before: Any) -> tuple[int, ...]:
        number = chance.choice([0, 1, 2, 3, 4])
        dealt.append(tuple(chance.randrange(number) for _ in range(step.slots)) if number else ())
        return tuple(dealt[-1])

    monkeypatch.setattr(epochs, "deal_out", deal)
    return dealt


@pytest.mark.parametrize("few", [0, 20_000], ids=["spread", "in one partition"])
def test_random_deals_and_numbers_of_tasks_give_equal_views(
    few: int, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", few)
    chance = random.Random(few)
    dealt = dealt_at_random(monkeypatch, chance)
    with shop(tmp_path / "t.ev", engine) as db:
        for _ in range(6):
            change(db, chance, 60)
            assert not db.maintain().failed
            assert_equal(db)
    assert len({len(set(tasks)) for tasks in dealt}) > 2


@pytest.mark.on_the_engine
def test_an_epoch_that_runs_again_deals_out_as_before(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt finds what the first one wrote, part by part."""
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", 0)
    chance = random.Random(1)
    with shop(tmp_path / "t.ev", engine) as db:
        dealt_at_random(monkeypatch, chance)
        monkeypatch.setattr(chance, "choice", lambda choices: choices[-1])
        change(db, random.Random(2), 60)

        def fails(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(epochs, "with_changes", fails)
            with pytest.raises(KeyboardInterrupt):
                db.maintain()
        intent = db.store.catalog.get(INTENT)
        assert intent is not None
        assert intent.tasks
        applied: list[Any] = []
        apply = EmbeddedShard.apply

        def noted(self: EmbeddedShard, epoch: int, token: int, work: Any, *rest: Any) -> Any:
            def fails_if_done(state: Any) -> Any:
                applied.append(rest)
                return work(state)

            return apply(self, epoch, token, fails_if_done, *rest)

        monkeypatch.setattr(EmbeddedShard, "apply", noted)
        assert not db.maintain().failed
        assert not applied, "all parts were done, and answered from their outboxes"
        assert db.store.catalog.epoch.tasks == intent.tasks
        assert_equal(db)


def slot_of(number: int, view: ViewRecord) -> int:
    hashed = hash_of([(pa.int64(), number)])
    assert hashed is not None
    return hashed % view.slots


@pytest.mark.on_the_engine
def test_slots_with_much_work_get_tasks_of_their_own(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that all lie in one shard: with whole shards one task would do everything."""
    monkeypatch.setattr(dealing, "is_small", lambda step: False)
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", 0)
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g BIGINT, x INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS s FROM t GROUP BY g")
        db.maintain()
        view = db.store.catalog.get(VIEWS["v"])
        assert view is not None
        if (tasks := len(view.shards)) == 1:
            pytest.skip("on one core there is one task")
        groups = [g for g in range(4000) if slot_of(g, view) % len(view.shards) == 0]
        for epoch in range(3):
            rows = [{"id": g, "g": g, "x": epoch + 1} for g in groups]
            db.table("t").put(rows)
            db.maintain()
            assert db.verify("v").equal
        owners = db.store.catalog.epoch.tasks
        work = [0.0] * view.slots
        for g in groups:
            work[slot_of(g, view)] += 1
        assert owners
        assert unevenness(owners, work, [1.0] * tasks) < 1.5
        works = [
            db.store.states.shard(state, number).work()
            for state in view.operators.values()
            for number in view.shards
        ]
        assert sum(sum(one.rows_of_slots) for one in works) == len(groups), (
            "they came added up by group"
        )
        assert any(one.parts for one in works)


@pytest.mark.on_the_engine
def test_a_slot_that_two_tasks_take_is_caught(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the rows of a slot go to two tasks, under other parts of the same epoch."""
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", 0)
    chance = random.Random(5)
    with shop(tmp_path / "t.ev", sail) as db:
        dealt_at_random(monkeypatch, chance)
        monkeypatch.setattr(chance, "choice", lambda choices: choices[-1])
        by_part = workers._by_part

        def twice(task: Any, batches: Any) -> Any:
            for rows in by_part(task, batches):
                yield rows
                parts = workers._parts(workers._step(task.step), task.whole).all
                others = [i for i, p in enumerate(parts) if p.shard == rows.part.shard]
                other = others[others.index(rows.number) - 1]
                if other != rows.number:
                    yield rows._replace(number=other, part=parts[other])

        monkeypatch.setattr(workers, "_by_part", twice)
        change(db, random.Random(6), 60)
        report = db.maintain()
        assert report.failed or not all(db.verify(name).equal for name in VIEWS_OF)


def test_nothing_is_dealt_out_for_small_epochs(db: ev.Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    step = Step(db.store.address, (12, 6), 1, 2, {"t": {0: 0}}, {"t": {0: 5}})
    assert dealing.deal_out(db.store, [], step, ()) == ()
    assert db.store.catalog.get(EPOCH) is None


@pytest.mark.on_the_engine
def test_a_damaged_view_stops_alone_though_its_work_can_not_be_read(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everview.programs.step.FEW_CHANGES", 0)
    monkeypatch.setattr(dealing, "is_small", lambda step: False)
    with shop(tmp_path / "t.ev", sail) as db:
        spend = db.store.catalog.get(VIEWS["spend"])
        assert spend is not None
        db.store.states.drop(*spend.operators.values(), used=())
        change(db, random.Random(3), 60)
        report = db.maintain()
        assert set(report.failed) == {"spend"}
        assert all(db.verify(name).equal for name in VIEWS_OF if name != "spend")


def test_the_work_of_a_state_that_views_share_counts_once(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
        for name, condition in (("v", "n > 0"), ("w", "n > 1")):
            counted = "SELECT g, count(*) AS n FROM t GROUP BY g"
            db.sql(
                f"CREATE MATERIALIZED VIEW {name} WITH (sharing = 'none') AS "
                f"SELECT * FROM ({counted}) WHERE {condition}"
            )
        db.maintain()
        views = list(db.store.catalog.all(VIEWS).values())
        states = [state for view in views for state in view.states.values()]
        assert len(set(states)) < len(states), "they share an operator"
        assert len(list(dealing._works(db.store, views))) == len(set(states))
