"""An engine for tests that have no need of Spark: DuckDB behind the same method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

import everview
from everview.errors import InvalidSql


class DuckEngine:
    """Remembers what it was asked: `queries` are pairs of SQL text and tables to read."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, Mapping[str, Sequence[str] | None]]] = []

    def select(
        self,
        db: str,
        sql: str,
        tables: Mapping[str, Sequence[str] | None],
        views: Mapping[str, pa.Table],
    ) -> pa.Table:
        self.queries.append((sql, tables))
        with duckdb.connect() as connection, everview.open(db) as database:
            for name, columns in tables.items():
                connection.register(name, database.table(name).to_arrow(columns))
            try:
                return connection.sql(sql.replace("`", '"')).to_arrow_table()
            except duckdb.Error as error:
                raise InvalidSql(str(error)) from None
