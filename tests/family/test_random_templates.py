"""Random views with parameters and up to 500 members: after every epoch of random changes, of rows
and of members, each member equals DuckDB's answer of the query with its values."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.family.test_random_members import REGIONS, TABLES, change, literal
from tests.random.oracle import Duck, Row, differences, rows_of

TYPES = {"r": "STRING", "c": "INT", "d": "DATE"}
CONDITIONS = {
    "r": ("o.region = :p", "o.region <> :p", "o.region >= :p", "o.region IS NULL OR o.region = :p"),
    "c": ("o.customer < :p", "o.customer BETWEEN :p - 1 AND :p + 1", "o.customer IN (:p, :p + 2)",
          "o.amount > :p", "NOT (o.amount <= :p OR o.customer = :p)"),
    "d": ("o.day >= :p", "o.day < :p", "o.day > :p - INTERVAL 3 DAYS AND o.day <= :p",
          "NOT (o.day <= :p)"),
}  # fmt: skip
SHAPES = (
    "SELECT o.customer, count(*) AS n, sum(o.amount) AS total, avg(o.id) AS a {} "
    "GROUP BY o.customer",
    "SELECT count(*) AS n, sum(o.amount) AS total, count(o.day) AS m {}",
    "SELECT o.day, min(o.amount) AS least, max(o.id) AS last, count(DISTINCT o.customer) AS d {} "
    "GROUP BY o.day",
    "SELECT o.id, o.amount {}",
    "SELECT DISTINCT o.customer {}",
    "SELECT o.customer, o.region, sum(o.amount) AS total {} GROUP BY o.customer, o.region "
    "ORDER BY total DESC NULLS LAST, o.customer NULLS FIRST, o.region NULLS FIRST LIMIT 3",
    "SELECT o.day, count(*) AS n, avg(o.amount) AS a {} GROUP BY o.day "
    "ORDER BY n, a DESC NULLS LAST, o.day NULLS FIRST LIMIT 2 OFFSET 1",
    "SELECT o.id, o.amount, o.day {} ORDER BY o.amount DESC NULLS LAST, o.id LIMIT 2",
)
FROM = ("FROM orders o", "FROM orders o JOIN customers c ON o.customer = c.id AND c.name <> 'b'",
        "FROM orders o LEFT JOIN customers c ON o.customer = c.id")  # fmt: skip
VIEWS = 6
EPOCHS = 3


@dataclass
class Template:
    """A query with parameters, which begin with the letters of `TYPES`."""

    parameters: list[str]
    query: str

    @classmethod
    def of(cls, chance: random.Random, shape: str) -> Template:
        letters = [chance.choice("rcd") for _ in range(chance.randint(1, 4))]
        parameters = [f"{letter}{number}" for number, letter in enumerate(letters)]
        conditions = [
            f"({chance.choice(CONDITIONS[name[0]])})".replace(":p", f":{name}")
            for name in parameters
        ]
        where = conditions[0]
        for condition in conditions[1:]:
            where = f"({where} {chance.choice(['AND', 'AND', 'OR'])} {condition})"
        return cls(parameters, shape.format(f"{chance.choice(FROM)} WHERE {where}"))

    def statement(self, view: str) -> str:
        columns = ", ".join(f"{name} {TYPES[name[0]]}" for name in self.parameters)
        return f"CREATE MATERIALIZED VIEW {view} ({columns}) AS {self.query}"

    def member(self, chance: random.Random) -> dict[str, Any]:
        values = {
            "r": lambda: chance.choice([*REGIONS, *map(str, range(20))]),
            "c": lambda: chance.randrange(-2, 100),
            "d": lambda: dt.date(2025, 12, 25) + dt.timedelta(chance.randrange(20)),
        }
        return {name: values[name[0]]() for name in self.parameters}

    def wanted(self, duck: Duck, members: list[dict[str, Any]]) -> list[Row]:
        rows: list[Row] = []
        for member in members:
            query = self.query
            for name, value in member.items():
                query = query.replace(f":{name}", literal(value))
            rows += [(*member.values(), *row) for row in duck.rows(query)]
        return rows


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "templates.ev", create=True) as database:
        database.engines.use(engine)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        yield database


def check(db: ev.Database, views: dict[str, Template], about: str) -> None:
    duck = Duck()
    duck.load({name: db.table(name).to_arrow() for name in TABLES})
    for name, template in views.items():
        members = list(db.view(name).members.scan())
        found = rows_of(db.view(name).to_arrow())
        wrong = differences(found, template.wanted(duck, members))
        assert not wrong, f"{about}: {template.statement(name)}\n{wrong}"


@pytest.mark.parametrize("seed", range(8))
def test_many_members_equal_the_query_with_their_values(
    db: ev.Database, seed: int, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    if not is_long and (seed > 1 or db.engine.name != "sail"):
        pytest.skip("with --long: more of them, on both engines, and 500 members")
    chance = random.Random(f"templates {seed}")
    shapes = chance.sample(SHAPES, VIEWS)
    views = {f"v{n}": Template.of(chance, shape) for n, shape in enumerate(shapes)}
    change(db, chance)
    for number, (name, template) in enumerate(views.items()):
        db.sql(template.statement(name))
        many = chance.choice([1, 30, 500] if is_long else [1, 24])
        if number % 2:
            db.view(name).members.put([template.member(chance) for _ in range(many)])
    for epoch in range(EPOCHS):
        assert db.maintain().failed == {}
        check(db, views, f"seed {seed}, epoch {epoch}")
        change(db, chance)
        for name, template in views.items():
            members = db.view(name).members
            there = [tuple(row.values()) for row in members.scan()]
            most = 500 - len(there) if is_long and chance.random() < 0.4 else 5
            members.put([template.member(chance) for _ in range(chance.randint(0, max(most, 0)))])
            if there and chance.random() < 0.5:
                members.delete(chance.sample(there, chance.randint(1, len(there))))
