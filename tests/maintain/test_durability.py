"""Views of a database are maintained at the durability it was opened with."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import everview as ev
from everview.engines.engine import Engine


@pytest.mark.parametrize("durability", ["never", "always"])
def test_views_are_maintained_at_any_durability(
    spark: Engine, sail: Engine, tmp_path: Path, durability: Literal["never", "always"]
) -> None:
    with ev.open(tmp_path / "test.ev", create=True, durability=durability) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT sum(x) AS s FROM t")
        db.table("t").put([{"id": 1, "x": 2}, {"id": 2, "x": 3}])
        assert db.maintain().failed == {}
        db.table("t").delete([1])
        assert db.maintain().failed == {}
        assert list(db.view("v").scan()) == [{"s": 3}]
