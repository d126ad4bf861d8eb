"""The number of slots is fixed with the first view of a database."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import everview as ev
from everview.catalog import VIEWS
from everview.cli import main
from everview.engines.engine import Engine
from everview.errors import DatabaseError


def test_slots_are_chosen_when_a_database_is_made(sail: Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.ev"
    result = CliRunner().invoke(main, ["init", str(path), "--slots", "12"])
    assert result.exit_code == 0, result.output
    with ev.open(path) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT g, count(*) AS n FROM t GROUP BY g")
        db.table("t").put([{"id": i, "g": i % 40} for i in range(400)])
        db.maintain()
        view = db.store.catalog.get(VIEWS["v"])
        assert view is not None
        assert view.slots == 12
        assert [db.view("v").get(g) for g in range(40)] == [{"g": g, "n": 10} for g in range(40)]
    ev.open(path, create=True, slots=12).close()
    with pytest.raises(DatabaseError, match="has 12 slots, and their number is fixed"):
        ev.open(path, slots=64)


@pytest.mark.parametrize("slots", [0, 7, 2000, -4])
def test_a_wrong_number_of_slots_is_refused(tmp_path: Path, slots: int) -> None:
    with pytest.raises(DatabaseError, match=r"a multiple of 4 from 4 to 1,024, not"):
        ev.open(tmp_path / "t.ev", create=True, slots=slots)
    assert not (tmp_path / "t.ev").exists(), "nothing was made"


def test_a_number_of_slots_may_change_before_the_first_view(tmp_path: Path) -> None:
    ev.open(tmp_path / "t.ev", create=True, slots=8).close()
    with ev.open(tmp_path / "t.ev", slots=128) as db:
        assert db.store.catalog.slots == 128
