"""Random sets of views that share operators, some of them behind conditions that never hold.

Views of a set are made of few relations, so that many have equal joins and groups. An optimizer
that sees that a condition folds need not run what is below it: who shares that must not be wrong.
Views come before, between and after epochs, and their names are in a random order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.plan import rules
from everview.plan.rules import fold_what_is_empty
from everview.programs import step

from .oracle import Duck, differences, rows_of

WIDE = (
    "CREATE TABLE t (k1 INT, k2 INT, a INT, s STRING, PRIMARY KEY (k1, k2))",
    "CREATE TABLE u (k INT PRIMARY KEY, a INT, s STRING)",
)
# of these every condition and every view uses all columns, so more operators are equal
NARROW = (
    "CREATE TABLE t (k1 INT, k2 INT, PRIMARY KEY (k1, k2))",
    "CREATE TABLE u (k INT PRIMARY KEY)",
)
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
HALVES = ("SEMI", "ANTI")
OPEN = (
    *("t.k1 < u.k", "t.k1 < u.k", "t.a <= u.a", "t.a <= u.a", "t.k1 <> u.k", "t.a = u.a"),
    *("t.k1 = u.k AND t.a < u.a", "t.s = u.s", "TRUE", "t.k1 = u.k", "t.k2 <= u.k"),
)
FOLDED = (
    *("1 = 0", "FALSE", "CAST(NULL AS BOOLEAN)", "NOT TRUE", "t.k1 IS NULL", "t.a = u.a AND 1 = 0"),
    *("t.k1 <> t.k1", "t.a = 1 AND t.a = 2", "t.a > 5 AND t.a < 3", "t.a IS NULL AND t.a = 1"),
    *("length(t.s) < 0", "abs(t.k1) < 0", "t.k1 = NULL", "coalesce(t.k1, 1) IS NULL"),
    *("t.a < u.a AND t.a > u.a", "t.k1 < u.k AND u.k IS NULL", "u.k IS NULL"),
    *("t.a IN (1) AND t.a IN (2)", "CASE WHEN 1 = 0 THEN TRUE ELSE FALSE END", "t.s < ''"),
)
TESTS = ("a > 1", "s LIKE 'x%'", "a IS NULL", "b < 3", "a < b", "TRUE", "TRUE")
FOLDED_TESTS = (
    *(
        "FALSE",
        "1 = 0",
        "CAST(NULL AS BOOLEAN)",
        "a = 1 AND a = 2",
        "a <> a",
        "a IS NULL AND a > 0",
    ),
    *("b = 1 AND b = 2", "length(s) < 0", "a > b AND a < b", "s = 'x' AND s = 'y'"),
)
TOPS = (
    "{rows}",
    "SELECT a, b, s FROM ({rows}) r WHERE {test}",
    "SELECT count(*) AS n FROM ({rows}) r WHERE {test}",
    "SELECT count(*) AS n FROM ({rows}) r",
    "SELECT 1 AS one FROM ({rows}) r WHERE {test}",
    "SELECT * FROM (SELECT a, count(*) AS n, sum(b) AS b FROM ({rows}) q GROUP BY a) r "
    "WHERE {of_n}",
    "SELECT s, min(a) AS low, max(b) AS high FROM ({rows}) r WHERE {test} GROUP BY s",
    "SELECT n, count(*) AS times FROM (SELECT a, s, count(*) AS n FROM ({rows}) q GROUP BY a, s) r "
    "WHERE {of_n} GROUP BY n",
    "SELECT DISTINCT a, s FROM ({rows}) r WHERE {test}",
    "SELECT * FROM (SELECT a, b, s FROM ({rows}) q ORDER BY a, b, s LIMIT {limit}) r WHERE {test}",
    "SELECT a, b, n FROM (SELECT a, s, b, row_number() OVER (PARTITION BY a ORDER BY b, s) AS n "
    "FROM ({rows}) q) r WHERE {of_n}",
    "SELECT a, b, s FROM ({rows}) r WHERE a >= (SELECT avg(a) FROM t WHERE {of_t})",
    "SELECT a, b, s FROM ({rows}) r WHERE {test} UNION ALL SELECT a, b, s FROM ({rows}) r "
    "WHERE {other}",
    "SELECT a, b FROM ({rows}) r WHERE EXISTS (SELECT 1 FROM u WHERE u.a = r.a AND {of_u})",
    "SELECT a, b FROM ({rows}) r WHERE a NOT IN (SELECT k FROM u WHERE {of_u})",
)


@dataclass(frozen=True)
class View:
    """`epoch` is how many epochs come before it."""

    name: str
    query: str
    epoch: int


class Sets:
    """Makes the views of a set by chance: of few relations, in few forms, with many conditions."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.tables = chance.choice([WIDE, NARROW, NARROW])
        self._relations = [self._relation() for _ in range(chance.choice([1, 1, 1, 2]))]
        self._tops = [TOPS[0], chance.choice(TOPS[1:4]), chance.choice(TOPS)]

    def views(self, number: int, epochs: int) -> list[View]:
        names = [f"v_{letter}" for letter in self._chance.sample("abcdefghij", number)]
        last = self._chance.choice([1, epochs])
        return [View(name, self._query(), self._chance.randrange(last)) for name in names]

    def _relation(self) -> tuple[str, str]:
        """A join, without its condition, and what is shown of it."""
        is_wide = self.tables is WIDE
        if self._chance.random() < 0.15:
            half = self._chance.choice(HALVES)
            return f"t LEFT {half} JOIN u", f"{'t.a, t.s' if is_wide else 't.k2 AS a'}, t.k1 AS b"
        join = self._chance.choices(JOINS, [1, 2, 1, 6])[0]
        shown = "t.a, coalesce(t.s, u.s) AS s" if is_wide else "t.k1 AS a, t.k2"
        return f"t {join} u", f"{shown}, u.k AS b"

    def _rows(self) -> str:
        join, shown = self._chance.choice(self._relations)
        on = self._one_of(OPEN if self._chance.random() < 0.5 else FOLDED)
        return f"SELECT {shown} FROM {join} ON {on}"

    def _test(self) -> str:
        return self._one_of(TESTS if self._chance.random() < 0.7 else FOLDED_TESTS)

    def _one_of(self, texts: tuple[str, ...]) -> str:
        """By chance, of those whose columns there are."""
        absent = () if self.tables is WIDE else ("t.a", "u.a", ".s", "s LIKE", "(s)", "s =")
        return self._chance.choice([t for t in texts if not any(name in t for name in absent)])

    def _query(self) -> str:
        query = self._chance.choice(self._tops)
        if self.tables is NARROW:
            query = (
                query.replace(", s ", " ")
                .replace(", s)", ")")
                .replace(", s,", ",")
                .replace("s, min(a)", "b, min(a)")
                .replace("BY s", "BY b")
            )
            query = query.replace("avg(a)", "avg(k1)").replace("u.a", "u.k")
        return query.format(
            rows=self._rows(),
            test=self._test(),
            other=self._test(),
            of_n=self._chance.choice(["n > 1", "n < 3", "n < 0", "n = 1 AND n = 2", "n IS NULL"]),
            limit=self._chance.choice([0, 1, 3]),
            of_t=self._one_of(("TRUE", "t.k2 < 1", "1 = 0", "t.k1 IS NULL")),
            of_u=self._one_of(("TRUE", "u.s = 'x'", "1 = 0", "u.k IS NULL")),
        )


def run_set(seed: int, engine: Engine, path: Path, views: int = 6, epochs: int = 4) -> int:
    """How many views were compared; raises AssertionError with all that it takes to see it."""
    chance = random.Random(seed)
    sets = Sets(chance)
    made = sets.views(views, epochs)
    told = [*sets.tables]
    live: dict[str, str] = {}
    duck = Duck()
    with ev.open(path, create=True) as db, pytest.MonkeyPatch.context() as patched:
        db.engines.use(engine)
        if chance.random() < 0.7:  # then only the engine folds
            patched.setattr(rules, "RULES", tuple(_without_folding()))
        for table in sets.tables:
            db.sql(table)
        for epoch in range(epochs):
            for text in _changes(chance, sets.tables is WIDE, 2 if epoch else 9):
                db.sql(text)
                told.append(text)
            for view in made:
                if view.epoch == epoch:
                    told.append(f"CREATE MATERIALIZED VIEW {view.name} AS {view.query}")
                    db.sql(told[-1])
                    live[view.name] = view.query
            patched.setattr(step, "FEW_CHANGES", chance.choice([0, 20_000]))
            told.append("-- maintain")
            failed = db.maintain().failed
            assert not failed, _told(seed, told, str(failed))
            duck.load({name: db.table(name).to_arrow() for name in "tu"})
            for name, query in live.items():
                rows = rows_of(db.view(name).to_arrow())
                wrong = differences(rows, duck.rows(re.sub("LEFT (SEMI|ANTI)", r"\1", query)))
                assert not wrong, _told(seed, told, f"{name}: {'; '.join(wrong[:5])}")
    duck.close()
    return len(live)


def _without_folding() -> Iterator[object]:
    return (rule for rule in rules.RULES if rule is not fold_what_is_empty)


def _told(seed: int, told: list[str], what: str) -> str:
    return f"seed {seed}: {what}\n" + ";\n".join(told)


def _changes(chance: random.Random, is_wide: bool, number: int) -> Iterator[str]:
    for _ in range(number):
        of_t, of_u = f"{chance.randrange(4)}, {chance.randrange(2)}", f"{chance.randrange(6)}"
        rest = ""
        if is_wide:
            value = chance.choice(["NULL", *"0123"])
            rest = f", {value}, {chance.choice(['NULL', chr(39) * 2, repr('x'), repr('y')])}"
        yield chance.choice(
            [
                f"INSERT INTO t VALUES ({of_t}{rest})",
                f"INSERT INTO u VALUES ({of_u}{rest})",
                f"INSERT INTO u VALUES ({of_u}{rest})",
                f"DELETE FROM t WHERE k1 = {of_t[0]}",
                f"DELETE FROM u WHERE k = {of_u}",
            ]
        )
