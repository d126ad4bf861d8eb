"""Names with characters that do not show are refused for that reason."""

from __future__ import annotations

import pytest

import everview as ev
from everview.errors import InvalidSchema
from everview.schema import TableSchema, check_visible

HIDDEN = {
    "a\0b": r"U\+0000 \(a control character\)",
    "a\nb": r"U\+000A",
    "a\x7fb": r"U\+007F",
    "a\u0085b": r"U\+0085",
    "a\u202eb": r"U\+202E \(right-to-left override\)",
    "a\u200bb": r"U\+200B \(zero width space\)",
    "a\u2028b": r"U\+2028 \(line separator\)",
    "\ufeffa": r"U\+FEFF",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_characters_are_named(db: ev.Database, name: str) -> None:
    with pytest.raises(InvalidSchema, match=f"name of a table: it has {HIDDEN[name]}"):
        db.create_table(name, {"k": "INT"}, "k")
    with pytest.raises(InvalidSchema, match=f"name of a column: it has {HIDDEN[name]}"):
        db.create_table("t", {"k": "INT", name: "INT"}, "k")
    table = db.create_table("t", {"k": "INT"}, "k")
    with pytest.raises(InvalidSchema, match=f"name of a column: it has {HIDDEN[name]}"):
        table.add_columns({name: "INT"})
    with pytest.raises(InvalidSchema, match=f"name of a view: it has {HIDDEN[name]}"):
        db.sql(f"CREATE MATERIALIZED VIEW `{name}` AS SELECT k FROM t")
    with pytest.raises(InvalidSchema, match="it has U"):
        db.sql(f"CREATE TABLE `{name}` (k INT PRIMARY KEY)")
    assert db.tables == ["t"]


@pytest.mark.parametrize("name", ["größe", "日本", "👨‍👩‍👧", "می‌خواهم", "a b", "naïve-1"])
def test_what_shows_is_taken(db: ev.Database, name: str) -> None:
    db.create_table(name, {"k": "INT", name: "INT"}, "k").put({"k": 1, name: 2})
    assert db.tables == [name]
    check_visible("view", name)


def test_a_table_from_before_can_still_be_read() -> None:
    old = TableSchema.of("a\u202eb", {"k": "INT"}, "k")
    assert TableSchema.from_json(old.to_json()).name == "a\u202eb"
