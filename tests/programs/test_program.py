"""Plans as programs: which rows meet where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.programs import step
from everview.sql import planning
from everview.stores.embedded import shard
from everview.stores.embedded.shard import EmbeddedShard


def test_each_shard_is_loaded_once(
    sail: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an aggregate of all rows, which makes its row even over none, above another operator
    that has all rows in one shard: a second load would take the place of the first."""
    loaded: list[tuple[str, bytes]] = []

    def load(shard: EmbeddedShard, *arguments: Any, found: Any = EmbeddedShard.load) -> pa.Table:
        loaded.append((shard.environment.path, shard._prefix))
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


@pytest.mark.parametrize(("few", "shards"), [(20_000, (12, 6)), (0, (12,))])
def test_rows_of_a_shard_that_come_in_many_batches_are_filtered_in_one_task(
    engine: Engine,
    spark: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    few: int,
    shards: tuple[int, ...],
) -> None:
    """Sail deals out batches to all cores before it filters them. With one shard there are fewer
    tasks than cores also where rows are spread."""
    monkeypatch.setattr(shard, "_READ", 4)  # rows in a batch
    monkeypatch.setattr(step, "FEW_CHANGES", few)
    monkeypatch.setattr(planning, "_shards", lambda context: shards)
    with ev.open(tmp_path / "t.ev", create=True) as db:
        db.engines.use(engine)
        db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
        db.table("t").put([{"k": k} for k in range(40)])
        numbered = "SELECT k, row_number() OVER (ORDER BY k) AS n FROM t"
        db.sql(f"CREATE MATERIALIZED VIEW numbered AS {numbered}")
        db.maintain()
        first = f"SELECT k FROM ({numbered}) WHERE n > 10 ORDER BY n LIMIT 25"
        db.sql(f"CREATE MATERIALIZED VIEW some AS {first}")
        assert db.maintain().failed == {}
        assert [row["k"] for row in db.view("some").scan()] == list(range(10, 35))
