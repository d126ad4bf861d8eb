"""What others do while a view is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import everview as ev
from everview.catalog import VIEWS, ViewRecord
from everview.engines.owner import Engines
from everview.errors import InUse, TableExists, TableNotFound, ViewNotFound
from everview.maintain import views
from everview.sql import planning as planner
from everview.sql.context import Context
from everview.sql.create_view import CreateView
from tests.records import a_view, record_of

Act = Callable[[], object]
CREATE = "CREATE MATERIALIZED VIEW v AS SELECT * FROM t"


class Planning:
    """Plans nothing, and meanwhile lets another do something, once."""

    def __init__(self) -> None:
        self.meanwhile: Act | None = None

    def __call__(
        self,
        context: Context,
        name: str,
        source: CreateView | ViewRecord,
        views: Mapping[str, Any],
        before: ViewRecord | None = None,
    ) -> ViewRecord:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            act()
        over = {view: view for view in views}
        return a_view(name, definition=source.definition, views=over)


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch) -> Planning:
    made = Planning()
    monkeypatch.setattr(planner, "_planned", made)
    monkeypatch.setattr(Engines, "planner", True)
    return made


@pytest.fixture
def db(planning: Planning, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.create_table("t", {"id": "INT"}, "id", regions=1)
        yield db


@pytest.mark.parametrize("name", ["v", "V"])
def test_a_name_that_another_took_meanwhile_is_taken(
    db: ev.Database, planning: Planning, name: str
) -> None:
    theirs = CREATE.replace("VIEW v", f"VIEW {name}") + " WHERE id > 1"
    planning.meanwhile = lambda: db.sql(theirs)
    with pytest.raises(TableExists, match="view v exists already"):
        db.sql(CREATE)
    assert db.view("v").sql.endswith("id > 1")
    planning.meanwhile = lambda: db.sql("CREATE TABLE w (id INT PRIMARY KEY)")
    with pytest.raises(TableExists, match="there is a table w"):
        db.sql(CREATE.replace("VIEW v", "VIEW w"))
    with pytest.raises(TableExists, match="there is a view v"):
        db.store.create_table(ev.TableSchema.of("v", {"id": "INT"}, "id"))


def test_one_that_may_be_there_or_be_replaced_is_so_also_if_it_came_meanwhile(
    db: ev.Database, planning: Planning
) -> None:
    planning.meanwhile = lambda: db.sql(CREATE + " WHERE id > 1")
    assert "exists already" in db.sql(CREATE.replace("VIEW v", "VIEW IF NOT EXISTS v")).message
    assert db.view("v").sql.endswith("id > 1")
    db.sql("DROP VIEW v")
    planning.meanwhile = lambda: db.sql(CREATE + " WHERE id > 1")
    replaced = db.sql(CREATE.replace("CREATE", "CREATE OR REPLACE"))
    assert "will be replaced" in replaced.message
    assert db.view("v").sql == "SELECT * FROM t"


def test_a_table_that_went_meanwhile_is_not_there(db: ev.Database, planning: Planning) -> None:
    planning.meanwhile = lambda: db.sql("DROP TABLE t")
    with pytest.raises(TableNotFound, match="no table t"):
        db.sql(CREATE)
    assert db.views() == []


def test_a_table_that_a_view_reads_by_now_stays(db: ev.Database) -> None:
    db.sql(CREATE)
    with pytest.raises(InUse, match="table T is read by view v"):
        db.store.drop_table("T")
    assert db.tables() == ["t"]


def test_a_view_that_another_reads_by_now_stays(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.sql(CREATE)

    def fenced(store: object, token: int) -> None:
        monkeypatch.undo()
        reader = replace(record_of(db, "v"), name="w", views={"v": "v"})
        db.store.catalog.write({VIEWS["w"]: reader})

    monkeypatch.setattr(views, "fence", fenced)
    with pytest.raises(InUse, match="view v is read by view w"):
        db.sql("DROP VIEW v")
    assert db.views() == ["v", "w"]


def test_a_view_that_went_meanwhile_is_neither_renamed_nor_rebuilt(
    db: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = {VIEWS["v"]: None}
    monkeypatch.setattr(views, "fence", lambda store, token: store.catalog.write(gone))
    for act in (lambda: db.sql("ALTER VIEW v RENAME TO w"), lambda: db.rebuild("v")):
        db.sql(CREATE)
        with pytest.raises(ViewNotFound, match="no view v"):
            act()
        assert db.views() == []
