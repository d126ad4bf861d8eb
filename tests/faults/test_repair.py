"""Damaged state is told of, stops only its view, and is made anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import everview as ev
from everview.cli.main import main
from everview.engines.engine import Engine
from everview.errors import Damaged, NotLoaded
from everview.stores.embedded.shard import EmbeddedShard
from everview.stores.embedded.volumes import place_of
from tests.records import record_of


@pytest.fixture
def shop(spark: Engine, sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.create_table("orders", {"id": "INT", "who": "STRING", "n": "INT"}, key="id")
        db.table("orders").put([{"id": i, "who": f"person {i % 50}", "n": i} for i in range(500)])
        for name in ("spend", "twin"):
            db.sql(
                f"CREATE MATERIALIZED VIEW {name} AS "
                "SELECT who, sum(n) AS n FROM orders GROUP BY who HAVING sum(n) > 1"
            )
        db.sql("CREATE MATERIALIZED VIEW large AS SELECT id, who FROM orders WHERE n > 100")
        db.maintain()
        yield db


def damage(db: ev.Database, state: str, offset: int) -> None:
    """Flip a byte in what a state keeps of everybody, so far from where the name begins."""
    for number in db.store.states.shards(place_of(state)[0]):  # type: ignore[attr-defined]
        shard = db.store.states.shard(state, number)
        assert isinstance(shard, EmbeddedShard)
        with shard.environment.reading() as txn:
            items = [
                key + value
                for database in shard.environment.dbs[:2]
                for key, value in txn.cursor(database)
                if key.startswith(shard._prefix) and b"person " in key + value
            ]
        assert items
        file = Path(shard.environment.path, "data.mdb")
        data = bytearray(file.read_bytes())
        for item in items:
            for found in re.finditer(re.escape(item), bytes(data)):
                data[found.start() + item.index(b"person ") + offset] ^= 0xFF
        with open(file, "r+b") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())


def states_of(db: ev.Database, view: str) -> dict[str, str]:
    return dict(record_of(db, view).states)


def test_a_view_with_damaged_rows_is_told_of_and_repaired(shop: ev.Database) -> None:
    damage(shop, states_of(shop, "large")["view"], 3)
    with pytest.raises(Damaged, match=r"checksum|header"):
        shop.view("large").to_arrow()
    assert len(shop.view("spend")) == 50
    ran = CliRunner().invoke(main, ["verify", shop.path, "--repair"])
    assert ran.exit_code == 0, ran.output
    assert "large: loading it again" in ran.output
    assert "spend: loading it again" not in ran.output
    assert shop.verify("large").equal


@pytest.mark.parametrize("offset", [3, 20], ids=["key", "sums"])
def test_damaged_state_stops_the_views_that_need_it_and_no_other(
    shop: ev.Database, offset: int
) -> None:
    (shared,) = set(states_of(shop, "spend").values()) & set(states_of(shop, "twin").values())
    damage(shop, shared, offset)
    shop.table("orders").put([{"id": i, "who": f"person {i % 50}", "n": 7} for i in range(500)])
    report = shop.maintain()
    assert report.failed.keys() == {"spend", "twin"}
    assert "--repair" in report.failed["spend"]
    assert f"(state {shared} in" in report.failed["spend"]
    assert shop.verify("large").equal
    assert len(shop.view("spend")) == 50, "it stays readable as it was"
    assert shop.rebuild("twin").failed == {}
    assert {shop.view(name).status for name in shop.views()} == {"live"}
    assert all(shop.verify(name).equal for name in shop.views())


def test_a_view_that_is_made_anew_is_not_read_as_if_it_were_empty(
    shop: ev.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ev.Database, "maintain", lambda *_, **__: None)
    shop.rebuild("large")
    for read in (shop.view("large").to_arrow, lambda: shop.verify("large")):
        with pytest.raises(NotLoaded):
            read()
    monkeypatch.undo()
    shop.maintain()
    assert shop.verify("large").equal


def test_a_new_view_is_loaded_without_the_damaged_rows_of_another(shop: ev.Database) -> None:
    """It would have taken them in place of its own plan."""
    query = shop.view("large").sql
    damage(shop, states_of(shop, "large")["view"], 3)
    shop.sql(f"CREATE MATERIALIZED VIEW again AS {query}")
    report = shop.maintain()
    assert (report.loaded, report.failed) == (["again"], {})
    assert shop.verify("again").equal
