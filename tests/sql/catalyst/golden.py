"""Plans as text, beside the queries that they are of: a change of the front end shows in them.

`python -m tests.sql.catalyst.golden` writes the plans of all queries in `plans/` anew; what it
changed is then to be read. A file is a query, an empty line and its plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from everview.plan.expressions import both, readable
from everview.plan.nodes import Node
from everview.schema import Column, arrow_type, sql_name
from everview.sql.catalyst import translate

PLANS = Path(__file__).parent / "plans"
_TABLES = {
    "orders": {
        "id": "BIGINT",
        "customer": "BIGINT",
        "amount": "DECIMAL(12,2)",
        "pieces": "INT",
        "weight": "DOUBLE",
        "placed": "DATE",
        "sent": "TIMESTAMP",
        "note": "STRING",
        "tags": "ARRAY<STRING>",
        "place": "STRUCT<city: STRING, zip: INT>",
    },
    "customers": {"id": "BIGINT", "name": "STRING", "country": "STRING", "since": "DATE"},
}
RELATIONS = {
    table: tuple(Column(name, arrow_type(type_), name != "id") for name, type_ in columns.items())
    for table, columns in _TABLES.items()
}


def files() -> list[Path]:
    return sorted(PLANS.glob("*.txt"))


def query_of(file: Path) -> str:
    return file.read_text().split("\n\n")[0]


def written(session: SparkSession, query: str) -> str:
    """A query and its plan."""
    plan = translate(session, query, RELATIONS).plan
    columns = ", ".join(f"{one.name} {sql_name(one.type)}" for one in plan.columns)
    return "\n".join([query, "", f"view ({columns})", *_lines(plan, ""), ""])


def _lines(node: Node, indent: str) -> Iterator[str]:
    """The node, then its inputs; words for Sail, where they are others, stand under it."""
    yield f"{indent}{node.label()}"
    for tree in node.trees():
        spark, sail = both(tree)
        if spark != sail:
            yield f"{indent}    {readable(tree)} on Sail: {sail}"
    for one in node.inputs():
        yield from _lines(one, f"{indent}  ")


def _write() -> None:
    from everview.engines.engine import start

    for file in files():
        file.write_text(written(start("spark").session, query_of(file)))


if __name__ == "__main__":
    _write()
