"""Every construct that is maintained equals Spark's own answer, when loaded and under changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import step
from tests.breadth.constructs import CONSTRUCTS, TABLES
from tests.breadth.page import PAGE, create, page

EPOCHS = 1


@dataclass(frozen=True)
class Made:
    """A database with a view for each construct, the planner's verdicts by query, and what Spark
    is asked for each view."""

    db: ev.Database
    verdicts: dict[str, str]
    wanted: dict[str, str]


@pytest.fixture(scope="module")
def made(sail: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with ev.open(tmp_path_factory.mktemp("breadth") / "all.ev", create=True) as db:
        db.engines.use(sail)
        for statement in TABLES.values():
            db.sql(statement)
        verdicts, wanted = {}, {}
        for number, construct in enumerate(CONSTRUCTS):
            verdict = create(db, f"v{number}", construct.query)
            verdicts[construct.query] = verdict
            if not verdict.startswith("refused"):
                wanted[f"v{number}"] = construct.same_as or construct.query
        yield Made(db, verdicts, wanted)


def row(chance: random.Random, key: int) -> dict[str, Any]:
    return {
        "k": key,
        "a": chance.choice([None, 1, 2, 3, 4]),
        "b": chance.choice([None, "x", "y", "x,y", "z,z,x"]),
        "c": chance.choice([None, *range(10)]),
    }


def change(db: ev.Database, chance: random.Random) -> None:
    for table in TABLES:
        db.table(table).put([row(chance, key) for key in chance.sample(range(25), 12)])
        there = [found["k"] for found in db.table(table).scan()]
        db.table(table).delete(chance.sample(there, 4))


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    """Rows as a multiset; doubles to twelve digits."""
    return Counter(tuple(map(_text, found.values())) for found in rows)


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else repr(value)


def check(db: ev.Database, spark: Engine, wanted: dict[str, str]) -> None:
    for table in TABLES:
        rows = db.table(table).to_arrow()
        spark.session.createDataFrame(rows).createOrReplaceTempView(table)
    wrong = []
    for view, query in wanted.items():
        found = counted(db.view(view).to_arrow().to_pylist())
        answer = counted(spark.session.sql(query).toArrow().to_pylist())
        if found != answer:
            wrong.append(f"{query}\n  has {found - answer}\n  lacks {answer - found}")
    assert not wrong, "\n".join(wrong)


def test_every_construct_equals_sparks_answer(
    made: Made, spark: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded, under changes, and when all rows are deleted."""
    db, wanted = made.db, made.wanted
    monkeypatch.setattr(step, "FEW_CHANGES", 30)
    chance = random.Random(5)
    for _ in range(1 + EPOCHS):
        change(db, chance)
        assert db.maintain().failed == {}
    check(db, spark, wanted)
    for table in TABLES:
        db.table(table).delete([found["k"] for found in db.table(table).scan()])
    assert db.maintain().failed == {}
    check(db, spark, wanted)


def test_the_page_says_what_the_planner_says(made: Made) -> None:
    assert PAGE.read_text() == page(made.verdicts), "python -m tests.breadth.page writes it anew"
