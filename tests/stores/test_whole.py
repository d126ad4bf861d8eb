"""The contracts are whole: views are maintained over any store that keeps them."""

from __future__ import annotations

import random

import everview as ev
from everview.engines.engine import Engine
from everview.engines.owner import Engines
from everview.stores.base import Store

QUERIES = {
    "spend": "SELECT who, sum(n) AS total, max(n) AS most FROM orders GROUP BY who",
    "named": "SELECT o.id, c.city FROM orders o LEFT JOIN customers c ON o.who = c.who",
    "best": "SELECT who, total FROM spend ORDER BY total DESC, who LIMIT 2",
    "kinds": "SELECT DISTINCT city FROM named",
}


def test_views_over_a_store_are_current_after_each_epoch(store: Store, sail: Engine) -> None:
    db = ev.Database(store, Engines("sail"))
    db.engines.use(sail)
    db.create_table("orders", {"id": "INT", "who": "STRING", "n": "BIGINT"}, "id", regions=2)
    db.create_table("customers", {"who": "STRING", "city": "STRING"}, "who", regions=1)
    chance = random.Random(1)
    for name, query in QUERIES.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for epoch in range(4):
        names = [chance.choice("abcd") for _ in range(12)]
        rows = [{"id": chance.randrange(30), "who": who, "n": len(who) + epoch} for who in names]
        db.table("orders").put(rows)
        db.table("orders").delete([chance.randrange(30)])
        db.table("customers").put({"who": chance.choice("abcd"), "city": chance.choice("xy")})
        report = db.maintain()
        assert not report.failed
        with db.pin() as at:
            for name, query in QUERIES.items():
                shown = sorted(map(str, at.view(name).to_arrow().to_pylist()))
                assert shown == sorted(map(str, db.sql(query).to_arrow().to_pylist())), name
    assert db.view("spend").get("a") is not None
    db.sql("CREATE OR REPLACE MATERIALIZED VIEW spend AS " + QUERIES["spend"] + " HAVING true")
    db.maintain()
    db.sql("DROP VIEW spend CASCADE")
    assert db.views == ["kinds", "named"]
    assert not db.maintain().failed
