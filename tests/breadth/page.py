"""Writes docs/reference/sql.md: python -m tests.breadth.page"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import everview as ev
from everview.errors import UnsupportedSql
from tests.breadth.constructs import CONSTRUCTS, TABLES, Construct

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
MARK = "<!-- from here on written by tests/breadth/page.py -->\n"


def page(verdicts: Mapping[str, str]) -> str:
    """The page with its tables written anew; verdicts by query."""
    head, _, _ = PAGE.read_text().partition(MARK)
    lines = [head + MARK]
    for section, some in groupby(CONSTRUCTS, lambda one: one.section):
        lines += [f"## {section}", "", "| | maintained | query |", "|---|---|---|"]
        lines += [_row(construct, verdicts[construct.query]) for construct in some]
        lines.append("")
    return "\n".join(lines)


def create(db: ev.Database, view: str, query: str) -> str:
    """Create a view; returns how it is maintained, or that it is refused and why."""
    try:
        db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")
    except UnsupportedSql as error:
        return f"refused: {error}"
    document: Any = db.explain(view, json=True)
    return str(document["maintained"]).replace("of its operators may re-read", "re-reads")


def _row(construct: Construct, verdict: str) -> str:
    cells = (construct.name, verdict, f"`{construct.query}`")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as directory,
        ev.open(Path(directory, "page.ev"), create=True) as database,
    ):
        for statement in TABLES.values():
            database.sql(statement)
        named = [(f"v{i}", construct.query) for i, construct in enumerate(CONSTRUCTS)]
        PAGE.write_text(page({query: create(database, view, query) for view, query in named}))
