"""The TPC-DS queries in Spark SQL, read from where they are kept; they are no part of the project.

Two things are changed. q30 names a column of customer that the generator calls
c_last_review_date_sk. And a query with two columns of one name, which no view may have (q14b, q39a,
q39b, q64), is wrapped: its columns are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import sqlglot
from sqlglot import exp

DIRECTORY = Path(__file__).parents[3] / "shared" / "tpcds" / "queries"
_RENAMED = {"c_last_review_date": "c_last_review_date_sk"}


@dataclass(frozen=True)
class Query:
    name: str
    text: str

    @cached_property
    def parsed(self) -> exp.Query:
        found = sqlglot.parse_one(self.text, dialect="spark")
        assert isinstance(found, exp.Query)
        return found

    @property
    def tables(self) -> set[str]:
        """Names of the tables and common table expressions it reads."""
        return {table.name.lower() for table in self.parsed.find_all(exp.Table)}

    @property
    def as_view(self) -> str:
        """The query of the view: with numbered columns where two have one name."""
        names = list(_columns(self.parsed, {}))
        named = [name for name in names if name]
        if len(set(named)) == len(named):
            return self.text
        numbered = ", ".join(f"c{n}" for n in range(1, len(names) + 1))
        return f"SELECT * FROM ({self.text}) AS numbered ({numbered})"


def read(directory: Path = DIRECTORY, limit: int = 100) -> dict[str, Query]:
    """All queries by name, q2 before q10.

    A `limit` below 100, instead of the one they end with, is also reached with little data.
    """
    found = {}
    for file in sorted(directory.glob("q*.sql"), key=lambda file: _number(file.stem)):
        text = file.read_text().strip().rstrip(";")
        for name, actual in _RENAMED.items():
            text = re.sub(rf"\b{name}\b", actual, text)
        text = re.sub(r"\bLIMIT 100$", f"LIMIT {limit}", text)
        found[file.stem] = Query(file.stem, text)
    return found


def _columns(query: exp.Query, named: Mapping[str, exp.Query]) -> Iterator[str]:
    """Names of its columns; a star stands for those of subqueries and of `named` ones."""
    named = {**named, **{cte.alias.lower(): cte.this for cte in query.ctes}}
    for column in query.selects:
        if not column.is_star:
            yield column.output_name.lower()
            continue
        for source in (query.args["from_"], *(query.args.get("joins") or [])):
            below = source.this
            inner = below.this if isinstance(below, exp.Subquery) else named.get(below.name.lower())
            if inner is not None:
                yield from _columns(inner, named)


def _number(name: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", name)
    return int(digits), name
