"""Ordinary views that differ in constants follow random changes, while some come, are dropped and
replaced: each equals DuckDB's answer of its query, whether it is maintained with others or not."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import step
from tests.family.test_random_members import REGIONS, TABLES, VIEWS, change, day, literal
from tests.random.oracle import Duck, differences, rows_of

TEMPLATES = {name: text.partition(" AS ")[2] for name, text in VIEWS.items()} | {
    "days_as_texts": "SELECT customer, count(*) AS n FROM orders WHERE day >= ':d' GROUP BY "
    "customer ORDER BY n",
    "no_groups": "SELECT count(*) AS n, avg(amount) AS a FROM orders WHERE amount > :c.5 AND "
    "region IN (:r, :r, 'US')",
    "some_fail": "SELECT region, sum(amount / customer) AS s FROM orders WHERE customer > :c + 0 "
    "AND customer > 0 GROUP BY region",
    "amounts_between": "SELECT id, day FROM orders WHERE amount > :c AND amount <= :c.5 + 90 "
    "AND region <> :r",
    "distinct_of_some": "SELECT DISTINCT customer, region FROM orders WHERE day < :d",
    "least_of_some": "SELECT region, min(amount) AS m, count(DISTINCT day) AS n, sum(id) AS s FROM "
    "orders WHERE day >= :d AND customer > :c GROUP BY region",
    "of_both_tables": "SELECT c.name, max(o.amount) AS m FROM orders o JOIN customers c ON "
    "o.customer = c.id AND o.day > :d WHERE c.region >= :r GROUP BY c.name",
    "key_part": "SELECT id, amount FROM orders WHERE id = :c",
}
EPOCHS, AT_ONCE = 4, 12


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "alike.ev", create=True) as database:
        database.engines.use(engine)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        yield database


def query_of(template: str, chance: random.Random) -> str:
    """A query with constants for its parameters; the same ones come again now and then."""
    values = {
        "r": literal(chance.choice(REGIONS)),
        "c": str(chance.randrange(5)),
        "d": literal(day(chance)),
    }
    text = TEMPLATES[template].replace("':d'", f"'{day(chance)}'")
    return re.sub(r":(\w)\b", lambda name: values[name[1]], text)


def create(db: ev.Database, views: dict[str, str], names: list[str], chance: random.Random) -> None:
    """New views, or replaced ones, in a script or one by one."""
    statements = []
    for number, template in enumerate([names[0], *chance.choices(names, k=AT_ONCE - 1)]):
        is_old = views and chance.random() < 0.2
        name = chance.choice(list(views)) if is_old else f"{template}_{len(views)}_{number}"
        query = query_of(name.rsplit("_", 2)[0], chance)
        replaces = "OR REPLACE " if is_old else ""
        statements.append(f"CREATE {replaces}MATERIALIZED VIEW {name} AS {query}")
        views[name] = query
    if chance.random() < 0.5:
        list(db.run_script(";\n".join(statements)))
    else:
        for statement in statements:
            db.sql(statement)


def check(db: ev.Database, duck: Duck, views: dict[str, str]) -> None:
    duck.load({name: db.table(name).to_arrow() for name in TABLES})
    assert db.views == sorted(views)
    wrong = {}
    for name, query in views.items():
        view = db.view(name)
        assert view.status == "live", view.error
        wanted = duck.rows(query.replace("amount / customer", "amount::DOUBLE / customer"))
        found = differences(rows_of(view.to_arrow()), wanted)
        wrong |= {name: (query, found)} if found else {}
    assert wrong == {}


@pytest.mark.parametrize("seed", range(20))
def test_each_view_equals_its_query(
    db: ev.Database, seed: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    if seed and not is_long:
        pytest.skip("with --long: more seeds")
    chance, duck, views = random.Random(seed), Duck(), dict[str, str]()
    monkeypatch.setattr(step, "FEW_CHANGES", chance.choice([0, 20_000]))
    names = ["since_a_day", *chance.sample(list(TEMPLATES), len(TEMPLATES) if is_long else 8)]
    together = set[str | None]()
    for _ in range(EPOCHS if is_long else 3):
        create(db, views, names, chance)
        change(db, chance)
        assert db.maintain().failed == {}
        check(db, duck, views)
        together |= {db.view(name).family for name in views}
        for name in chance.sample(list(views), 3):
            db.sql(f"DROP VIEW {name}")
            del views[name]
    assert len(together) > 1, "some views are maintained together"
    assert [name for name in views if not db.verify(name).equal] == []
    for name in views:
        db.sql(f"DROP VIEW {name}")
    assert db.store.tables() == sorted(TABLES)
