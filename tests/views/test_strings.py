"""Parts of strings, from places and of lengths that are not in them: on Sail as in Spark."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import everview as ev
from everview.engines.engine import Engine

EXPRESSIONS = (
    *("substring(s, n, m)", "substring(s, n)", "substring(s, -5, 4)", "left(s, n)", "right(s, n)"),
    *("lpad(s, n, t)", "rpad(s, n, t)", "locate(t, s, n)", "locate('b', s, 2)", "left(s, -1)"),
)
TEXTS = ("", "abc", "aéb中😀x", None)
PLACES = (-7, -2, 0, 1, 4, None)
LENGTHS = (-(2**31), -1, 0, 2, 2**31 - 1, None)


def test_parts_of_strings_are_those_that_spark_gives(sail: Engine, tmp_path: Path) -> None:
    with ev.open(tmp_path / "t.ev", create=True, durability="never") as db:
        db.engines.use(sail)
        columns = {"id": "INT", "s": "STRING", "n": "INT", "m": "INT", "t": "STRING"}
        given = product(TEXTS, PLACES, LENGTHS, ("b", "", None))
        db.create_table("strings", columns, key="id").put(
            [dict(zip(columns, (i, *row), strict=True)) for i, row in enumerate(given)]
        )
        for i, expression in enumerate(EXPRESSIONS):
            db.sql(f"CREATE MATERIALIZED VIEW v{i} AS SELECT id, {expression} AS r FROM strings")
        assert db.maintain().failed == {}
        wrong = [text for i, text in enumerate(EXPRESSIONS) if not db.verify(f"v{i}").equal]
        assert wrong == []
