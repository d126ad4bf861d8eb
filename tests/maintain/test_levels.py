"""Levels of consistency: with 'complete', every change is a state of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import InvalidSql
from everview.maintain.watching import Epoch, Watcher


class States(Watcher):
    """What a view shows after each epoch."""

    def __init__(self, db: ev.Database, *views: str) -> None:
        self.seen: list[tuple[int, ...]] = []
        self._db, self._views = db, views

    def committed(self, epoch: Epoch) -> None:
        with self._db.pin(*self._views) as at:
            self.seen.append(tuple(next(at.view(view).scan())["n"] for view in self._views))


def test_a_complete_view_shows_every_change_in_order(sail: Engine, tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        table = db.create_table("t", {"id": "INT", "n": "INT"}, key="id")
        other = db.create_table("other", {"id": "INT", "n": "INT"}, key="id")
        db.sql("CREATE MATERIALIZED VIEW each WITH (consistency = 'complete') AS "
               "SELECT coalesce(sum(n), 0) AS n FROM t")  # fmt: skip
        db.sql("CREATE MATERIALIZED VIEW some AS SELECT coalesce(sum(n), 0) AS n FROM other")
        db.maintain()
        wanted, total = [], 0
        for i in range(8):
            table.put([{"id": i % 3, "n": i}])
            total += i - (i - 3 if i >= 3 else 0)
            wanted.append(total)
        other.put([{"id": i, "n": 1} for i in range(20)])
        states = States(db, "each", "some")
        assert db.maintain(watch=states).epochs == 8
        assert [each for each, _ in states.seen] == wanted
        assert {some for _, some in states.seen} == {20}, "others need not wait"
        assert db.view("each").consistency == "complete"
        assert db.view("some").consistency == "strong"
        shown = db.sql("SHOW VIEWS").to_pylist()
        assert [row["consistency"] for row in shown] == ["complete", "strong"]


@pytest.mark.parametrize(
    "options",
    [
        "(consistency = 'weak')",
        "(refresh = 'daily')",
        "(consistency)",
        "()",
        "(",
        "consistency",
        "",
    ],
)
def test_an_option_that_is_none_is_refused(db: ev.Database, options: str) -> None:
    db.create_table("t", {"id": "INT"}, key="id")
    with pytest.raises(InvalidSql, match=r"WITH \(consistency = "):
        db.sql(f"CREATE MATERIALIZED VIEW v WITH {options} AS SELECT * FROM t")
    assert db.views() == []
