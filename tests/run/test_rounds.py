"""Plans as programs: which rows meet where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.stores.embedded.shard import EmbeddedShard


def test_each_shard_is_loaded_once(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an aggregate of all rows, which makes its row even over none, above another operator
    that has all rows in one shard: a second load would take the place of the first."""
    loaded: list[str] = []

    def load(shard: EmbeddedShard, *arguments: Any, found: Any = EmbeddedShard.load) -> pa.Table:
        loaded.append(shard.environment.path)
        return found(shard, *arguments)

    monkeypatch.setattr(EmbeddedShard, "load", load)
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, a BIGINT)")
        db.table("t").put([{"id": i, "a": i} for i in range(20)])
        first = "SELECT a FROM t ORDER BY a LIMIT 3"
        db.sql(f"CREATE MATERIALIZED VIEW added AS SELECT sum(a) AS s FROM ({first})")
        db.sql(f"CREATE MATERIALIZED VIEW middle AS SELECT median(a) AS m FROM ({first})")
        assert db.maintain().failed == {}
        assert db.view("added").to_arrow().to_pylist() == [{"s": 3}]
        assert db.view("middle").to_arrow().to_pylist() == [{"m": 1.0}]
    assert len(loaded) == len(set(loaded)) > 4
