"""The maintainer's own steps, with an engine that does nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import everview as ev
from everview.catalog import EPOCH, INTENT, MAIN, VIEWS, Epoch
from everview.maintain.epochs import _run_epoch
from everview.maintain.loads import _rows_of
from everview.maintain.maintainer import Maintainer
from everview.maintain.report import Report
from everview.maintain.views import maintenance_paused
from everview.plan.expressions import Ref
from everview.plan.nodes import Join, Project, Source
from everview.programs.step import Step
from everview.schema import Column
from everview.stores.base import OF_VIEWS
from tests.records import a_view


def test_an_epoch_that_was_begun_moves_no_table_back(tmp_path: Path) -> None:
    """Its table may have been let go of since, with the last view over it, and followed again."""
    steps: list[Step] = []

    def run(views: object, step: Step, states: object) -> int:
        steps.append(step)
        return 0

    engine: Any = SimpleNamespace(programs=SimpleNamespace(run=run))
    view = a_view(tables=("t", "u"), states={"view": "s"}, status="live")
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        for name in ("t", "u"):
            table = db.create_table(name, {"id": "INT"}, "id", regions=1)
            table.put([{"id": i} for i in range(5)])
            db.store.register(name, OF_VIEWS, {0: 0})
        db.store.catalog.write(
            {
                VIEWS["v"]: view,
                EPOCH: Epoch(1, {"t": {0: 5}, "u": {0: 1}}),
                INTENT: Epoch(2, {"t": {0: 3}, "u": {0: 2}}),
            }
        )
        with maintenance_paused(db.store) as token:
            assert _run_epoch(Maintainer(db.store, engine, token, Report()), MAIN)
        (step,) = steps
        assert step.end == {"t": {0: 5}, "u": {0: 2}}
        epoch = db.store.catalog.get(EPOCH)
        assert epoch is not None
        assert epoch.positions == {"t": {0: 5}, "u": {0: 2}}


def test_rows_of_a_view_are_not_read_where_they_have_to_lie_as_those_of_its_plan() -> None:
    k, g, h = (Column(name, pa.int64(), False) for name in "kgh")
    left, right = Source((k, g), "t", ("k", "g")), Source((h,), "u", ("h",))
    joined = Join((k, g, h), left, right, "inner", ("g",), ("h",), (False,), False)
    for columns, is_placed in (((k, g), True), ((k,), False)):
        plan = Project(columns, joined, tuple(Ref(column.name) for column in columns))
        view = a_view(plan_text=plan.text, key=("k",), states={"view": "s"})
        assert _rows_of(view, lie_by_columns=False) is not None
        assert (_rows_of(view, lie_by_columns=True) is not None) == is_placed
