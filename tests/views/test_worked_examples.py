"""The worked examples of the Spark thesis's 3.2 and of the dissertation's 4.4, by figure or number.

The figures and the numbered examples run on both engines, with the documents' own rows. What the
documents only describe runs on Sail alone: such a test says where its rows are ours.
Intermediate tables (AggrIMTable, IMTable, I_del, I_Pre, I_Rev) are inner matters of a view here;
what is tested is what a reader of the view sees, after every change that a document shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.engines.engine import Engine


@pytest.fixture
def db(engine: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """An empty database on each engine in turn."""
    yield from opened(engine, tmp_path)


@pytest.fixture
def sail_db(sail: Engine, spark: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    """An empty database on Sail."""
    yield from opened(sail, tmp_path)


def opened(engine: Engine, path: Path) -> Iterator[ev.Database]:
    with ev.open(path / "examples.ev", create=True) as database:
        database.engines.use(engine)
        yield database


def table(db: ev.Database, name: str, columns: str) -> None:
    """A table whose first column is the key, in several regions as in a distributed store."""
    key = columns.split()[0]
    db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key})) WITH (regions = 3)")


def put(db: ev.Database, name: str, *rows: tuple[Any, ...]) -> None:
    target = db.table(name)
    columns = target.schema.arrow.names
    target.put([dict(zip(columns, row, strict=True)) for row in rows])


def bag(*rows: tuple[Any, ...]) -> Counter[tuple[Any, ...]]:
    return Counter(rows)


def maintained(db: ev.Database, view: str) -> Counter[tuple[Any, ...]]:
    """The view's rows, with their multiplicities, after all changes so far."""
    db.maintain()
    return Counter(tuple(row.values()) for row in db.view(view).scan())


def aggregation(db: ev.Database) -> None:
    """The left side of figures 3.2 to 3.5: a table that holds rows, and the view over them."""
    table(db, "AggrTable", "rowkey INT, key STRING, value INT")
    put(db, "AggrTable", (1, "A", 10), (2, "A", 20), (3, "B", 20), (4, "B", 40), (5, "C", 60))
    db.sql(
        "CREATE MATERIALIZED VIEW AggrViewTable AS SELECT key, sum(value) AS sum, "
        "count(value) AS count, min(value) AS min, max(value) AS max FROM AggrTable GROUP BY key"
    )
    assert maintained(db, "AggrViewTable") == bag(
        ("A", 30, 2, 10, 20), ("B", 60, 2, 20, 40), ("C", 60, 1, 60, 60)
    )


def test_figure_3_2_a_new_row_is_inserted(db: ev.Database) -> None:
    aggregation(db)
    put(db, "AggrTable", (6, "D", 30))
    assert maintained(db, "AggrViewTable") == bag(
        ("A", 30, 2, 10, 20), ("B", 60, 2, 20, 40), ("C", 60, 1, 60, 60), ("D", 30, 1, 30, 30)
    )


def test_figure_3_3_the_value_of_a_row_is_updated(db: ev.Database) -> None:
    aggregation(db)
    put(db, "AggrTable", (2, "A", 50))
    assert maintained(db, "AggrViewTable") == bag(
        ("A", 60, 2, 10, 50), ("B", 60, 2, 20, 40), ("C", 60, 1, 60, 60)
    )


def test_figure_3_4_the_key_of_a_row_is_updated(db: ev.Database) -> None:
    aggregation(db)
    put(db, "AggrTable", (2, "B", 20))
    assert maintained(db, "AggrViewTable") == bag(
        ("A", 10, 1, 10, 10), ("B", 80, 3, 20, 40), ("C", 60, 1, 60, 60)
    )


def test_figure_3_5_the_only_row_of_a_key_is_deleted(db: ev.Database) -> None:
    aggregation(db)
    db.table("AggrTable").delete([5])
    assert maintained(db, "AggrViewTable") == bag(("A", 30, 2, 10, 20), ("B", 60, 2, 20, 40))
    assert db.view("AggrViewTable").get("C") is None


def test_spark_thesis_3_2_1_one_of_several_rows_of_a_key_is_deleted(sail_db: ev.Database) -> None:
    """The other scenario of a delete, told beside figure 3.5: which rows go is our choice."""
    aggregation(sail_db)
    sail_db.table("AggrTable").delete([2, 3])
    assert maintained(sail_db, "AggrViewTable") == bag(
        ("A", 10, 1, 10, 10), ("B", 40, 1, 40, 40), ("C", 60, 1, 60, 60)
    )


PAIRS = "FROM BaseTableA a JOIN BaseTableB b ON a.key = b.key"


def base_tables(db: ev.Database) -> None:
    """The left side of figure 3.6."""
    for name in ("BaseTableA", "BaseTableB"):
        table(db, name, "rowkey STRING, key STRING, value INT")
    put(db, "BaseTableA", ("a1", "A", 10), ("a2", "B", 20), ("a3", "C", 30), ("a4", "D", 40))
    put(
        db, "BaseTableB",
        ("b1", "A", 10), ("b2", "A", 20), ("b3", "B", 30), ("b4", "B", 40), ("b5", "E", 50),
    )  # fmt: skip


def sums_of_pairs(db: ev.Database) -> None:
    """The view of figure 3.6: its row keys are pairs of the tables' row keys."""
    base_tables(db)
    db.sql(
        "CREATE MATERIALIZED VIEW ViewTable AS SELECT a.rowkey AS a, b.rowkey AS b, "
        f"sum(a.value + b.value) AS sum {PAIRS} GROUP BY a.rowkey, b.rowkey"
    )


def test_figure_3_6_a_new_row_is_inserted_for_join_and_aggregation(db: ev.Database) -> None:
    """The figure's view shows (a5, b5) also before a5 is there, a slip: its IMTable does not."""
    sums_of_pairs(db)
    before = bag(("a1", "b1", 20), ("a1", "b2", 30), ("a2", "b3", 50), ("a2", "b4", 60))
    assert maintained(db, "ViewTable") == before
    put(db, "BaseTableA", ("a5", "E", 30))
    assert maintained(db, "ViewTable") == before + bag(("a5", "b5", 80))


def test_spark_thesis_3_2_2_values_and_keys_are_updated_and_rows_deleted_under_a_join(
    sail_db: ev.Database,
) -> None:
    """The three cases after figure 3.6, told without rows: the changes to its rows are ours."""
    sums_of_pairs(sail_db)
    put(sail_db, "BaseTableA", ("a5", "E", 30))
    sail_db.maintain()
    put(sail_db, "BaseTableA", ("a1", "A", 15))
    put(sail_db, "BaseTableB", ("b5", "E", 70))
    assert maintained(sail_db, "ViewTable") == bag(
        ("a1", "b1", 25), ("a1", "b2", 35), ("a2", "b3", 50), ("a2", "b4", 60), ("a5", "b5", 100)
    )
    put(sail_db, "BaseTableA", ("a2", "E", 20))
    put(sail_db, "BaseTableB", ("b2", "C", 20))
    assert maintained(sail_db, "ViewTable") == bag(
        ("a1", "b1", 25), ("a3", "b2", 50), ("a2", "b5", 90), ("a5", "b5", 100)
    )
    sail_db.table("BaseTableA").delete(["a1", "a5"])
    sail_db.table("BaseTableB").delete(["b2"])
    assert maintained(sail_db, "ViewTable") == bag(("a2", "b5", 90))


def test_spark_thesis_3_2_3_join_and_selection_in_the_same_four_cases(
    sail_db: ev.Database,
) -> None:
    """Told without a figure: the rows of figure 3.6, and changes of ours after its insert."""
    base_tables(sail_db)
    sail_db.sql(
        "CREATE MATERIALIZED VIEW ViewTable AS SELECT a.rowkey AS a, b.rowkey AS b, "
        f"a.value AS of_a, b.value AS of_b {PAIRS}"
    )
    of_a1 = bag(("a1", "b1", 10, 10), ("a1", "b2", 10, 20))
    of_a2 = bag(("a2", "b3", 20, 30), ("a2", "b4", 20, 40))
    assert maintained(sail_db, "ViewTable") == of_a1 + of_a2
    put(sail_db, "BaseTableA", ("a5", "E", 30))
    assert maintained(sail_db, "ViewTable") == of_a1 + of_a2 + bag(("a5", "b5", 30, 50))
    put(sail_db, "BaseTableB", ("b5", "E", 70))
    assert maintained(sail_db, "ViewTable") == of_a1 + of_a2 + bag(("a5", "b5", 30, 70))
    put(sail_db, "BaseTableA", ("a5", "D", 30))
    assert maintained(sail_db, "ViewTable") == of_a1 + of_a2
    sail_db.table("BaseTableA").delete(["a2"])
    assert maintained(sail_db, "ViewTable") == of_a1


def over_r(db: ev.Database, query: str) -> None:
    """The dissertation's base table R = (K, X, Y), empty, and a view V over it."""
    table(db, "R", "k STRING, x STRING, y INT")
    db.sql(f"CREATE MATERIALIZED VIEW V AS {query}")


def test_dissertation_4_4_delta_a_change_need_not_say_which_row_it_replaces(
    sail_db: ev.Database,
) -> None:
    """A delete carries a key only, and a selection is kept exact: the rows are of example 4.2.1."""
    over_r(sail_db, "SELECT k, x, y FROM R WHERE y > 12")
    put(sail_db, "R", ("k1", "x", 15))
    assert maintained(sail_db, "V") == bag(("k1", "x", 15))
    put(sail_db, "R", ("k1", "x", 20))
    assert maintained(sail_db, "V") == bag(("k1", "x", 20))
    put(sail_db, "R", ("k2", "x", 10))
    assert maintained(sail_db, "V") == bag(("k1", "x", 20))
    sail_db.table("R").delete(["k1"])
    assert maintained(sail_db, "V") == bag()


def test_dissertation_4_4_sum_and_count_of_several_partitions_are_combined(
    sail_db: ev.Database,
) -> None:
    """Equation 4.4.2 has no rows: these are of example 4.2.1, and a last step in two regions."""
    over_r(sail_db, "SELECT x, sum(y) AS sum, count(y) AS count FROM R GROUP BY x")
    put(sail_db, "R", ("k1", "x", 15))
    assert maintained(sail_db, "V") == bag(("x", 15, 1))
    put(sail_db, "R", ("k1", "x", 20))
    assert maintained(sail_db, "V") == bag(("x", 20, 1))
    put(sail_db, "R", ("k2", "x", 10))
    assert maintained(sail_db, "V") == bag(("x", 30, 2))
    sail_db.table("R").delete(["k1"])
    assert maintained(sail_db, "V") == bag(("x", 10, 1))
    put(sail_db, "R", ("k2", "x", 12), ("k3", "x", 7))
    assert [region.rows for region in sail_db.status()[0].regions if region.rows] == [1, 1]
    assert maintained(sail_db, "V") == bag(("x", 19, 2))


def test_example_4_4_1_the_minimum_is_deleted_and_the_next_one_found(db: ev.Database) -> None:
    """The values that the example asks for after u3 still list the deleted 3; its minimum is 5."""
    over_r(db, "SELECT x, min(y) AS min FROM R GROUP BY x")
    put(db, "R", ("k1", "x", 5))
    assert maintained(db, "V") == bag(("x", 5))
    put(db, "R", ("k2", "x", 3))
    assert maintained(db, "V") == bag(("x", 3))
    db.table("R").delete(["k2"])
    assert maintained(db, "V") == bag(("x", 5))


def test_example_4_4_1_its_three_updates_in_one_epoch(db: ev.Database) -> None:
    over_r(db, "SELECT x, min(y) AS min FROM R GROUP BY x")
    assert maintained(db, "V") == bag()
    put(db, "R", ("k1", "x", 5))
    put(db, "R", ("k2", "x", 3))
    db.table("R").delete(["k2"])
    assert maintained(db, "V") == bag(("x", 5))


def test_dissertation_4_4_min_and_max_know_how_often_a_value_is_there(
    sail_db: ev.Database,
) -> None:
    """The multiplicity n of equation 4.4.3: example 4.4.1 with each value twice, which is ours."""
    over_r(sail_db, "SELECT x, min(y) AS min, max(y) AS max FROM R GROUP BY x")
    put(sail_db, "R", ("k1", "x", 5), ("k2", "x", 3), ("k3", "x", 3), ("k4", "x", 5))
    assert maintained(sail_db, "V") == bag(("x", 3, 5))
    sail_db.table("R").delete(["k2", "k1"])
    assert maintained(sail_db, "V") == bag(("x", 3, 5))
    sail_db.table("R").delete(["k4"])
    assert maintained(sail_db, "V") == bag(("x", 3, 3))
    sail_db.table("R").delete(["k3"])
    assert maintained(sail_db, "V") == bag()


def r1_and_r2(db: ev.Database) -> None:
    """The dissertation's base tables R1 = (K, X, Y) and R2 = (L, X, Z), empty."""
    table(db, "R1", "k STRING, x STRING, y INT")
    table(db, "R2", "l STRING, x STRING, z INT")


def over_r1_and_r2(db: ev.Database, query: str) -> None:
    r1_and_r2(db)
    db.sql(f"CREATE MATERIALIZED VIEW V AS {query}")


def test_example_4_4_2_a_natural_join(db: ev.Database) -> None:
    over_r1_and_r2(db, "SELECT k, l, x, y, z FROM R1 NATURAL JOIN R2")
    put(db, "R1", ("k1", "x", 5))
    assert maintained(db, "V") == bag()
    put(db, "R1", ("k2", "x", 10))
    assert maintained(db, "V") == bag()
    put(db, "R2", ("l1", "x", 3))
    assert maintained(db, "V") == bag(("k1", "l1", "x", 5, 3), ("k2", "l1", "x", 10, 3))


def test_example_4_4_2_its_three_updates_in_one_epoch(db: ev.Database) -> None:
    """Both sides of the join change at once: each pair is there once, not twice."""
    over_r1_and_r2(db, "SELECT k, l, x, y, z FROM R1 NATURAL JOIN R2")
    assert maintained(db, "V") == bag()
    put(db, "R1", ("k1", "x", 5))
    put(db, "R1", ("k2", "x", 10))
    put(db, "R2", ("l1", "x", 3))
    assert maintained(db, "V") == bag(("k1", "l1", "x", 5, 3), ("k2", "l1", "x", 10, 3))


def test_dissertation_4_4_a_semi_join_from_the_same_rows(sail_db: ev.Database) -> None:
    """Equation 4.4.6 on the updates of example 4.4.2; a second match, and deletes, are ours."""
    over_r1_and_r2(
        sail_db, "SELECT k, x, y FROM R1 WHERE EXISTS (SELECT * FROM R2 WHERE R2.x = R1.x)"
    )
    put(sail_db, "R1", ("k1", "x", 5), ("k2", "x", 10))
    assert maintained(sail_db, "V") == bag()
    put(sail_db, "R2", ("l1", "x", 3))
    both = bag(("k1", "x", 5), ("k2", "x", 10))
    assert maintained(sail_db, "V") == both
    put(sail_db, "R2", ("l2", "x", 3))
    assert maintained(sail_db, "V") == both
    sail_db.table("R2").delete(["l1"])
    assert maintained(sail_db, "V") == both
    sail_db.table("R2").delete(["l2"])
    assert maintained(sail_db, "V") == bag()


def test_dissertation_4_4_a_left_join_from_the_same_rows(sail_db: ev.Database) -> None:
    """Equation 4.4.7 on the updates of example 4.4.2; the delete that undoes u3 is ours."""
    over_r1_and_r2(sail_db, "SELECT k, l, x, y, z FROM R1 LEFT JOIN R2 USING (x)")
    put(sail_db, "R1", ("k1", "x", 5))
    assert maintained(sail_db, "V") == bag(("k1", None, "x", 5, None))
    put(sail_db, "R1", ("k2", "x", 10))
    alone = bag(("k1", None, "x", 5, None), ("k2", None, "x", 10, None))
    assert maintained(sail_db, "V") == alone
    put(sail_db, "R2", ("l1", "x", 3))
    assert maintained(sail_db, "V") == bag(("k1", "l1", "x", 5, 3), ("k2", "l1", "x", 10, 3))
    sail_db.table("R2").delete(["l1"])
    assert maintained(sail_db, "V") == alone


@pytest.mark.parametrize("small", [60, 2], ids=["strategy 1: both large", "strategy 2: one small"])
def test_dissertation_4_4_a_join_is_loaded_and_followed_by_either_strategy(
    sail_db: ev.Database, small: int
) -> None:
    """How rows travel is not seen in the view: sizes and rows are ours, the join's result is it."""
    r1 = {f"k{i}": (f"x{i % 7}", i) for i in range(60)}
    r2 = {f"l{i}": (f"x{i % 9}", -i) for i in range(small)}
    r1_and_r2(sail_db)
    put(sail_db, "R1", *((k, *rest) for k, rest in r1.items()))
    put(sail_db, "R2", *((key, *rest) for key, rest in r2.items()))
    sail_db.sql("CREATE MATERIALIZED VIEW V AS SELECT k, l, x, y, z FROM R1 NATURAL JOIN R2")

    def joined() -> Counter[tuple[Any, ...]]:
        return bag(
            *((k, key, x, y, z) for k, (x, y) in r1.items() for key, (w, z) in r2.items() if w == x)
        )

    assert maintained(sail_db, "V") == joined()
    r1["k3"], r2["l1"] = ("x1", 1000), ("x5", 2000)
    put(sail_db, "R1", ("k3", "x1", 1000))
    put(sail_db, "R2", ("l1", "x5", 2000))
    del r1["k0"], r2["l0"]
    sail_db.table("R1").delete(["k0"])
    sail_db.table("R2").delete(["l0"])
    assert maintained(sail_db, "V") == joined()
