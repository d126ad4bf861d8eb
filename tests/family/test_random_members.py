"""Views with parameters follow random changes of rows and of members: each member equals DuckDB's
answer of the query with its values."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import step
from tests.random.oracle import Duck, Row, differences, rows_of

TABLES = {
    "orders": "id INT PRIMARY KEY, region STRING, customer INT, day DATE, amount DECIMAL(8, 2)",
    "customers": "id INT PRIMARY KEY, name STRING, region STRING, since DATE",
}
VIEWS = {
    "equal": "(r STRING) AS SELECT customer, sum(amount) AS total, count(*) AS n FROM orders "
    "WHERE region = :r GROUP BY customer",
    "from_a_day": "(r STRING, d DATE) AS SELECT customer, sum(amount) AS total, min(amount) AS "
    "least, max(day) AS last FROM orders WHERE region = :r AND day >= :d GROUP BY customer",
    "one_row_each": "(r STRING, c INT) AS SELECT count(*) AS n, sum(amount) AS total, max(id) AS m "
    "FROM orders WHERE region = :r OR customer < :c",
    "between": "(c INT) AS SELECT region, count(DISTINCT day) AS days FROM orders WHERE customer "
    "BETWEEN :c - 1 AND :c + 1 GROUP BY region",
    "other_than": "(r STRING) AS SELECT DISTINCT customer FROM orders WHERE region <> :r",
    "as_null_too": "(r STRING) AS SELECT id, amount FROM orders WHERE region IS NULL "
    "OR region = :r",
    "joined": "(r STRING, d DATE) AS SELECT c.name, count(*) AS n, sum(o.amount) AS total FROM "
    "orders o JOIN customers c ON o.customer = c.id WHERE c.region = :r AND o.day < :d "
    "GROUP BY c.name",
    "outer_joined": "(r STRING) AS SELECT c.id, c.name, o.id AS order_id FROM customers c "
    "LEFT JOIN orders o ON o.customer = c.id AND o.region = :r",
    "without": "(r STRING) AS SELECT c.id FROM customers c WHERE NOT EXISTS (SELECT 1 FROM "
    "orders o WHERE o.customer = c.id) AND c.region = :r",
    "having": "(r STRING, c INT) AS SELECT customer, count(*) AS n FROM orders WHERE region = :r "
    "GROUP BY customer HAVING count(*) > :c",
    "first_of_all": "(r STRING) AS SELECT id, amount FROM orders WHERE region = :r ORDER BY amount "
    "DESC, id LIMIT 3",
    "first_after_a_day": "(d DATE) AS SELECT id, amount FROM orders WHERE day >= :d ORDER BY "
    "amount NULLS FIRST, id LIMIT 2 OFFSET 1",
    "first_of_a_few": "(r STRING, d DATE) AS SELECT id, amount FROM orders WHERE region = :r AND "
    "day >= :d ORDER BY amount DESC NULLS LAST, id LIMIT 2",
    "most_spent": "(d DATE) AS SELECT customer, sum(amount) AS total, count(*) AS n FROM orders "
    "WHERE day >= :d GROUP BY customer ORDER BY total DESC NULLS LAST, customer LIMIT 2",
    "most_spent_here": "(r STRING, d DATE, c INT) AS SELECT customer, day, sum(amount) AS total "
    "FROM orders WHERE region = :r AND day < :d AND customer > :c GROUP BY customer, day ORDER BY "
    "total DESC NULLS LAST, day, customer LIMIT 2",
    "fewest_first": "(r STRING, c INT) AS SELECT day, count(*) AS n, avg(amount) AS a FROM orders "
    "WHERE region <> :r OR customer = :c GROUP BY day ORDER BY n, day NULLS FIRST LIMIT 2",
    "like_q3": "(r STRING, d DATE) AS SELECT o.id, c.name, sum(o.amount + 1) AS revenue FROM "
    "orders o JOIN customers c ON o.customer = c.id WHERE c.region = :r AND o.day > :d AND c.id > "
    "1 GROUP BY o.id, c.name ORDER BY revenue DESC NULLS LAST, o.id LIMIT 3",
    "numbered": "(r STRING) AS SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id) AS "
    "n FROM orders WHERE region = :r",
    "both_parts": "(r STRING, c INT) AS SELECT id FROM orders WHERE region = :r UNION ALL SELECT "
    "id FROM customers WHERE id = :c",
    "named_first": "(r STRING) AS WITH mine AS (SELECT * FROM orders WHERE region = :r) SELECT "
    "day, count(*) AS n FROM mine GROUP BY day",
    "since_a_day": "(d DATE) AS SELECT customer, sum(amount) AS total, count(*) AS n, avg(id) "
    "AS a, count(amount) AS m FROM orders WHERE day >= :d GROUP BY customer",
    "in_days": "(d DATE, c INT) AS SELECT count(*) AS n, sum(amount) AS total, avg(amount) AS a "
    "FROM orders WHERE day >= :d AND day < :d + INTERVAL 3 DAYS AND customer <= :c",
    "of_one_up_to": "(r STRING, d DATE) AS SELECT customer, sum(amount + 1) AS total FROM orders "
    "WHERE region = :r AND day <= :d GROUP BY customer",
    "after_and_dear": "(r STRING, c INT) AS SELECT day, count(*) AS n FROM orders WHERE region "
    "> :r AND amount > :c * 20 GROUP BY day HAVING count(*) > 1",
    "of_whole_days": "(d DATE) AS SELECT sum(o.amount) AS total, count(c.id) AS n FROM customers c "
    "JOIN orders o ON o.customer = c.id WHERE o.day < :d AND c.name = 'a'",
    "never_over": "(c INT) AS SELECT customer, count(*) AS n FROM orders WHERE customer > :c AND "
    "customer < :c GROUP BY customer",
    "either": "(r STRING, d DATE, c INT) AS SELECT customer, count(*) AS n, sum(amount) AS total "
    "FROM orders WHERE (region = :r OR day < :d) AND customer <> :c GROUP BY customer",
    "in_none_of": "(c INT, d DATE) AS SELECT count(*) AS n, sum(id) AS total FROM orders WHERE NOT "
    "(customer IN (:c, :c + 1) OR day >= :d) OR region IS NULL",
    "if_many": "(c INT, d DATE) AS SELECT region, count(*) AS n FROM orders WHERE day > :d AND "
    "(:c > 2 OR amount > 100) GROUP BY region",
    "shown": "(c INT) AS SELECT id, customer * :c AS times FROM orders WHERE customer > :c",
}
EPOCHS = 4
REGIONS = ["EU", "US", "it's", "ü", ""]


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "families.ev", create=True) as database:
        database.engines.use(engine)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        yield database


def day(chance: random.Random) -> dt.date:
    return dt.date(2026, 1, 1) + dt.timedelta(chance.randrange(8))


def change(db: ev.Database, chance: random.Random) -> None:
    orders = [
        {
            "id": key,
            "region": chance.choice([None, *REGIONS]),
            "customer": chance.choice([None, *range(6)]),
            "day": chance.choice([None, day(chance)]),
            "amount": chance.choice([None, chance.randrange(900) / 4]),
        }
        for key in chance.sample(range(50), 20)
    ]
    customers = [
        {"id": key, "name": chance.choice("ab"), "region": chance.choice(REGIONS), "since": None}
        for key in chance.sample(range(6), 3)
    ]
    db.table("orders").put(orders)
    db.table("orders").delete(chance.sample(range(50), 6))
    db.table("customers").put(customers)
    db.table("customers").delete([chance.randrange(6)])


def change_members(db: ev.Database, view: str, chance: random.Random) -> None:
    values = {"r": lambda: chance.choice(REGIONS), "c": lambda: chance.randrange(5)}
    values["d"] = lambda: day(chance)
    members = db.view(view).members
    names = members.schema.key
    there = [tuple(row.values()) for row in members.scan()]
    members.put([{name: values[name]() for name in names} for _ in range(chance.randrange(3))])
    if there and chance.random() < 0.5:
        members.delete([chance.choice(there)])


def literal(value: Any) -> str:
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def wanted(db: ev.Database, duck: Duck, view: str) -> list[Row]:
    rows: list[Row] = []
    for member in db.view(view).members.scan():
        query = VIEWS[view].partition(" AS ")[2]
        for name, value in member.items():
            query = query.replace(f":{name}", literal(value))
        rows += [(*member.values(), *row) for row in duck.rows(query)]
    return rows


def check(db: ev.Database, duck: Duck) -> None:
    duck.load({name: db.table(name).to_arrow() for name in TABLES})
    wrong = {}
    for view in VIEWS:
        found = differences(rows_of(db.view(view).to_arrow()), wanted(db, duck, view))
        wrong |= {view: found} if found else {}
    assert wrong == {}


@pytest.mark.parametrize("few", [20_000, 0])
def test_members_equal_the_query_with_their_values(
    db: ev.Database, few: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Half of the views are there before the rows and half have members before they are loaded."""
    is_long = request.config.getoption("--long")
    if not is_long and (few == 0) != (db.engine.name == "sail"):
        pytest.skip("with --long: on each engine, both spread over partitions and not")
    monkeypatch.setattr(step, "FEW_CHANGES", few)
    chance, duck = random.Random(7), Duck()
    names = list(VIEWS)
    for number, name in enumerate(names):
        if number % 2:
            change_members_of_new(db, name, chance)
            continue
        create(db, name, chance)
    change(db, chance)
    for _ in range(EPOCHS if is_long else 2):
        assert db.maintain().failed == {}
        check(db, duck)
        change(db, chance)
        for name in chance.sample(names, 10):
            change_members(db, name, chance)
    assert db.maintain().failed == {}
    check(db, duck)
    assert [str(db.verify(name)) for name in names if not db.verify(name).equal] == []


def create(db: ev.Database, view: str, chance: random.Random) -> None:
    """Some views share no more than the selection of rows."""
    sharing = chance.choice(["full", "full", "selection"])
    definition = VIEWS[view].replace(" AS ", f" WITH (sharing = '{sharing}') AS ", 1)
    db.sql(f"CREATE MATERIALIZED VIEW {view} {definition}")


def change_members_of_new(db: ev.Database, view: str, chance: random.Random) -> None:
    create(db, view, chance)
    for _ in range(3):
        change_members(db, view, chance)


def test_members_that_come_and_go_with_nothing_else(db: ev.Database) -> None:
    """Thousands in one batch."""
    db.sql(f"CREATE MATERIALIZED VIEW equal {VIEWS['equal']}")
    rows = [{"id": i, "region": f"r{i % 3000}", "customer": 1, "amount": 1} for i in range(6000)]
    db.table("orders").put(rows)
    db.maintain()
    db.view("equal").members.put([{"r": f"r{i}"} for i in range(5000)])
    db.maintain()
    assert len(db.view("equal")) == 3000
    assert list(db.view("equal").member("r7").scan()) == [{"customer": 1, "total": 2, "n": 2}]
    db.sql("DELETE FROM equal WHERE r <> 'r7'")
    db.maintain()
    assert len(db.view("equal")) == 1
