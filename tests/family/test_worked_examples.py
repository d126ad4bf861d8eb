"""The examples of the dissertation's chapter 5.1, by their numbers, as views and as members of
families. Example 5.1.4 stands in tests/plan/test_boxes.py, and its rows here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.catalog import VIEWS
from everview.engines.engine import Engine

TABLES = {
    "r1": "k STRING PRIMARY KEY, x STRING, y INT",
    "r2": "l STRING PRIMARY KEY, x STRING, z INT",
    "r3": "m STRING PRIMARY KEY, y INT",
}


@pytest.fixture
def db(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "examples.ev", create=True) as database:
        database.engines.use(sail)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        yield database


def create(db: ev.Database, view: str, definition: str) -> None:
    db.sql(f"CREATE MATERIALIZED VIEW {view} {definition}")


def rows(db: ev.Database, view: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in db.view(view).scan())


def test_example_5_1_1_a_row_that_no_longer_satisfies_the_condition_goes(db: ev.Database) -> None:
    """The log has the row before the change, so a selection needs no state to know that it was
    there."""
    create(db, "v", "AS SELECT k, x, y FROM r1 WHERE y < 5")
    create(db, "many", "(n INT) AS SELECT k, x, y FROM r1 WHERE y < :n")
    db.sql("INSERT INTO many VALUES (5), (8)")
    db.table("r1").put({"k": "k", "x": "x", "y": 4})
    db.maintain()
    assert rows(db, "v") == [("k", "x", 4)]
    assert rows(db, "many") == [(5, "k", "x", 4), (8, "k", "x", 4)]
    db.table("r1").put({"k": "k", "x": "x", "y": 7})
    db.maintain()
    assert rows(db, "v") == []
    assert rows(db, "many") == [(8, "k", "x", 7)]


def test_example_5_1_2_a_row_reaches_the_views_whose_conditions_it_satisfies(
    db: ev.Database,
) -> None:
    """The three conditions differ in their operators; as members they differ in a parameter that
    names the operator. The vector is (1, 0, 1)."""
    for number, sign in enumerate(("=", "<", "<="), 1):
        create(db, f"v{number}", f"AS SELECT k, x, y FROM r1 WHERE y {sign} 5")
    create(
        db,
        "many",
        "(sign STRING, n INT) AS SELECT k FROM r1 WHERE (:sign = '=' AND y = :n) OR "
        "(:sign = '<' AND y < :n) OR (:sign = '<=' AND y <= :n)",
    )
    db.sql("INSERT INTO many VALUES ('=', 5), ('<', 5), ('<=', 5)")
    db.maintain()
    db.table("r1").put({"k": "k", "x": "x", "y": 5})
    db.maintain()
    assert [rows(db, f"v{number}") for number in (1, 2, 3)] == [
        [("k", "x", 5)], [], [("k", "x", 5)],
    ]  # fmt: skip
    assert rows(db, "many") == [("<=", 5, "k"), ("=", 5, "k")]


def test_example_5_1_4_a_row_that_satisfies_both_sides_of_or_counts_once(db: ev.Database) -> None:
    """The sums are 8, 35 and 27; the printed equations have 46 for the second."""
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, y INT, z DECIMAL(4, 2))")
    values = [(4, ".10"), (4, ".25"), (20, ".25"), (7, ".35"), (12, ".50")]
    db.table("t").put([{"id": i, "y": y, "z": z} for i, (y, z) in enumerate(values)])
    of_z = "low DECIMAL(4,2), high DECIMAL(4,2)"
    create(db, "both", f"(n INT, {of_z}) AS SELECT sum(y) AS total FROM t WHERE y < :n AND z "
           "BETWEEN :low AND :high")  # fmt: skip
    create(db, "either", f"(n INT, {of_z}) AS SELECT sum(y) AS total FROM t WHERE y < :n OR z "
           "BETWEEN :low AND :high")  # fmt: skip
    create(db, "one", "(n INT) AS SELECT sum(y) AS total FROM t WHERE y < :n")
    db.sql("INSERT INTO both VALUES (5, 0.1, 0.3)")
    db.sql("INSERT INTO either VALUES (10, 0.2, 0.4)")
    db.sql("INSERT INTO one VALUES (15)")
    db.maintain()
    assert [rows(db, view)[0][-1] for view in ("both", "either", "one")] == [8, 35, 27]


def test_example_5_1_5_joins_with_a_side_in_common(db: ev.Database) -> None:
    """A view over the first one shares the state of its join. The same view spelled out over the
    tables has an operator of its own, as rows with a NULL in y are left out before the join; and
    the semi join has one, as the kind of a join is a part of what its operator is."""
    join = "r1 JOIN r2 ON r1.x = r2.x"
    create(db, "v1", f"AS SELECT k, l, r1.x, y, z FROM {join}")
    create(db, "v2", "AS SELECT k, x, y FROM r1 WHERE EXISTS (SELECT * FROM r2 WHERE r2.x = r1.x)")
    create(db, "v3", f"AS SELECT k, l, r1.x, r1.y, z, m FROM {join} JOIN r3 ON r1.y = r3.y")
    create(db, "v4", "AS SELECT v1.*, m FROM v1 JOIN r3 ON v1.y = r3.y")
    db.table("r1").put([{"k": "k1", "x": "x", "y": 5}, {"k": "k2", "x": "x", "y": 10}])
    db.maintain()
    assert [rows(db, view) for view in ("v1", "v2", "v3", "v4")] == [[], [], [], []]
    db.table("r2").put({"l": "l1", "x": "x", "z": 7})
    db.table("r3").put({"m": "m1", "y": 10})
    db.maintain()
    assert rows(db, "v1") == [("k1", "l1", "x", 5, 7), ("k2", "l1", "x", 10, 7)]
    assert rows(db, "v2") == [("k1", "x", 5), ("k2", "x", 10)]
    assert rows(db, "v3") == rows(db, "v4") == [("k2", "l1", "x", 10, 7, "m1")]
    plans = [db.store.catalog.get(VIEWS[name]).plan for name in ("v1", "v4")]
    joins = [{node.identity for node in plan.walk() if node.kind == "join"} for plan in plans]
    assert joins[0] < joins[1]


Bits = tuple[bool | None, bool | None]


def of_r1(y: int | None) -> Bits:
    """What r1 alone decides of `r1.y > 5 OR r2.z = 5` and of `r1.y = 10 AND r2.z > 15`."""
    return (True if y is not None and y > 5 else None), (None if y == 10 else False)


def of_r2(z: int | None) -> Bits:
    return (True if z == 5 else None), (None if z is not None and z > 15 else False)


def merged(left: Bits, right: Bits, y: int | None, z: int | None) -> list[bool]:
    """Where a side decides, it decides; else the condition is asked for the joined row."""
    whole = (False, y == 10 and z is not None and z > 15)
    pairs = zip(left, right, whole, strict=True)
    return [
        one if one is not None else other if other is not None else w for one, other, w in pairs
    ]


def test_example_5_1_6_what_each_side_decides_and_both_together(db: ev.Database) -> None:
    """The example has a vector with three values for the row of each side, and merges them. Here
    the parts that AND connects are asked of their side, before the join, and members find their
    rows by sorted intervals; what OR connects over both sides is asked once for the joined row. So
    no vector is stored; the outcome is that of merged vectors, for the example and for more rows.
    """
    either, both = "r1.y > {} OR r2.z = {}", "r1.y = {} AND r2.z > {}"
    select = "SELECT k, l FROM r1 JOIN r2 ON r1.x = r2.x WHERE"
    create(db, "v1", f"AS {select} {either.format(5, 5)}")
    create(db, "v2", f"AS {select} {both.format(10, 15)}")
    create(db, "f1", f"(a INT, b INT) AS {select} {either.format(':a', ':b')}")
    create(db, "f2", f"(a INT, b INT) AS {select} {both.format(':a', ':b')}")
    db.sql("INSERT INTO f1 VALUES (5, 5)")
    db.sql("INSERT INTO f2 VALUES (10, 15)")
    db.maintain()
    assert merged(of_r1(10), of_r2(7), 10, 7) == [True, False]
    db.table("r1").put({"k": "y10", "x": "x", "y": 10})
    db.table("r2").put({"l": "z7", "x": "x", "z": 7})
    db.maintain()
    assert [rows(db, view) for view in ("v1", "v2")] == [[("y10", "z7")], []]
    values = (None, 3, 5, 7, 10, 15, 16)
    db.table("r1").put([{"k": f"y{y}", "x": "x", "y": y} for y in values])
    db.table("r2").put([{"l": f"z{z}", "x": "x", "z": z} for z in values])
    db.maintain()
    for number, names in enumerate((("v1", "f1"), ("v2", "f2"))):
        wanted = sorted(
            (f"y{y}", f"z{z}")
            for y in values
            for z in values
            if merged(of_r1(y), of_r2(z), y, z)[number]
        )
        assert [row[-2:] for row in rows(db, names[0])] == wanted
        assert [row[-2:] for row in rows(db, names[1])] == wanted


def test_equation_5_1_10_an_inner_sum_for_each_member(db: ev.Database) -> None:
    """Rows above a sum that differs from member to member."""
    create(
        db,
        "above",
        "(n INT) AS SELECT k, y FROM r1, (SELECT sum(z) AS total FROM r2 WHERE z < :n) AS s "
        "WHERE y > s.total",
    )
    db.sql("INSERT INTO above VALUES (1), (4), (100)")
    db.table("r1").put([{"k": f"y{y}", "x": "x", "y": y} for y in (2, 5, 9)])
    db.table("r2").put([{"l": f"z{z}", "x": "x", "z": z} for z in (1, 3, 6)])
    db.maintain()
    assert rows(db, "above") == [(4, "y5", 5), (4, "y9", 9)]
    db.table("r2").delete(["z6"])
    db.maintain()
    assert rows(db, "above") == [
        (4, "y5", 5), (4, "y9", 9), (100, "y5", 5), (100, "y9", 9),
    ]  # fmt: skip
