"""Views in SQL, evaluated by DuckDB, for many cuts in one query.

The rows of the tables are stored with the first and the last of those cuts that they are in, and a
LATERAL join runs the query for each cut; a query that DuckDB can't run so is run cut by cut.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from everview.check.evaluate import Definition, Evaluator
from everview.check.history import History, Read, Write
from everview.check.rows import Rows, cell
from everview.check.timeline import Contents, Cut, Timeline
from everview.errors import EngineUnavailable, InvalidHistory, InvalidSql
from everview.intake import documents_to_arrow
from everview.schema import TableSchema

Schemas = Mapping[str, TableSchema | pa.Schema]
_MOST_ROWS = 1_000_000
_MOST_CUTS = 256


def schemas_of(history: History, table_schemas: Mapping[str, TableSchema]) -> Schemas:
    """The columns of all tables: as they are known, or as the rows that were written have them."""
    schemas: dict[str, TableSchema | pa.Schema] = {}
    columns: defaultdict[str, defaultdict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for write in history.writes:
        for name, value in (write.row or {}).items():
            columns[write.table.lower()][name].append(value)
    for table, values in columns.items():
        schemas[table] = pa.schema(
            [(n, _type_of(table, n, column_values)) for n, column_values in values.items()]
        )
    return schemas | {name.lower(): schema for name, schema in table_schemas.items()}


class SqlEvaluator(Evaluator):
    """Keeps all rows that were written in DuckDB, numbered; the rest is queries.

    `schemas` are the columns of the tables, by name in lower case (see `schemas_of`).
    """

    at_once = 64

    def __init__(
        self, definition: Definition, sql: str, history: History, schemas: Schemas
    ) -> None:
        tree = _parse(definition.name, sql)
        tables = _tables(tree)
        super().__init__(definition, Timeline(history, tables))
        self._contents = Contents(self.timeline)
        self._last_rows_read: tuple[Read, Rows] | None = None
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._columns: dict[str, list[str]] = {}
        self._connection = _connect()
        for table in sorted(tables):
            if table not in schemas:
                raise InvalidHistory(
                    f"view {definition.name} reads table {table}, of which the history has no rows "
                    "and so no columns; --db DB takes them from a database"
                )
            writes = [w for w in history.writes if w.table.lower() == table and w.row is not None]
            self._store(table, writes, schemas[table])
        self._query = _with_types(tree.sql(dialect="duckdb"), definition.types)
        self._keep([], 0)
        schema = self._run(self._at("0")).schema
        self._names = [name.lower() for name in schema.names]
        self._numeric = {n for n, field in zip(self._names, schema, strict=True) if _number(field)}
        self._timestamps = {
            name
            for name, field in zip(self._names, schema, strict=True)
            if pa.types.is_timestamp(field.type)
        }
        self._in_one = self._runs_in_one()

    def _store(self, table: str, writes: list[Write], schema: TableSchema | pa.Schema) -> None:
        rows = [dict(write.row or {}) for write in writes]
        if isinstance(schema, TableSchema):
            table_rows = documents_to_arrow(schema, rows)
        else:
            table_rows = pa.Table.from_pylist(rows, schema)
        table_rows = table_rows.select(self.definition.columns.get(table, table_rows.column_names))
        self._columns[table] = table_rows.column_names
        self._numbers.update({write.place: n for n, write in enumerate(writes)})
        table_rows = table_rows.cast(
            pa.schema([_without_zone(field) for field in table_rows.schema])
        )
        numbered = table_rows.append_column("#", pa.array(range(len(rows)), pa.int64()))
        self._connection.register("written", numbered)
        self._connection.execute(f"CREATE TABLE {_quoted('all ' + table)} AS SELECT * FROM written")

    def rows_at_each(self, cuts: Sequence[Cut]) -> Iterator[Rows]:
        start = 0
        while start < len(cuts):
            most_cuts = max(1, min(_MOST_CUTS, _MOST_ROWS // (len(self._contents.live) + 1)))
            some_cuts = cuts[start : start + most_cuts]
            start += len(some_cuts)
            self._load(some_cuts)
            if self._in_one:
                yield from self._in_one_query(len(some_cuts))
            else:
                for at in range(len(some_cuts)):
                    yield Counter(self._rows(self._run(self._at(str(at)))))

    def rows_of_writes(self, writes: Sequence[Write]) -> Rows:
        self._keep([(write, 0, 1) for write in writes if write.row is not None], 1)
        return Counter(self._rows(self._run(self._at("0"))))

    def rows_read(self, read: Read) -> Rows:
        if self._last_rows_read is not None and self._last_rows_read[0] is read:
            return self._last_rows_read[1]
        rows: Rows = Counter()
        for row in read.rows:
            cells = {name.lower(): value for name, value in row.items()}
            if cells.keys() != set(self._names):
                raise InvalidHistory(
                    f"a read of view {read.view} has the columns {', '.join(row)}; its query gives "
                    f"{', '.join(self._names)}. Name the query's columns with AS"
                )
            rows[tuple((name, self.cell(name, cells[name])) for name in self._names)] += 1
        self._last_rows_read = (read, rows)  # searches compare one read with many cuts
        return rows

    def cell(self, column: str, value: object) -> object:
        if column in self._timestamps and isinstance(value, str):
            return _in_utc(datetime.fromisoformat(value)).isoformat()
        return cell(value, column in self._numeric)

    def _load(self, cuts: Sequence[Cut]) -> None:
        """Keep the rows of all these cuts, each with its first and last cut."""
        first_cuts: dict[tuple[str, int, int], int] = {}
        lives = []
        for at, cut in enumerate(cuts):
            for removed, added in self._contents.move(cut):
                if at and removed is not None:
                    lives.append((removed, first_cuts.pop(removed.place, 0), at))
                if at and added is not None:
                    first_cuts[added.place] = at
            if not at:
                first_cuts = {write.place: 0 for write in self._contents.live.values()}
        lives += [
            (write, first_cuts[write.place], len(cuts)) for write in self._contents.live.values()
        ]
        self._keep(lives, len(cuts))

    def _keep(self, lives: list[tuple[Write, int, int]], cuts: int) -> None:
        """Give the tables these rows, each at first <= cut < last."""
        places = [(w.table.lower(), self._numbers[w.place], a, b) for w, a, b in lives if a < b]
        tables, *numbers = zip(*places, strict=True) if places else ((), (), (), ())
        columns = {"table": pa.array(tables, pa.string())}
        for name, values in zip(("#", "first", "last"), numbers, strict=True):
            columns[name] = pa.array(values, pa.int64())
        self._connection.register("lives", pa.table(columns))
        self._connection.register("cuts", pa.table({"at": pa.array(range(cuts), pa.int64())}))
        for table in self._columns:
            self._connection.execute(
                f"CREATE OR REPLACE TABLE {_quoted('live ' + table)} AS SELECT * "
                f'FROM {_quoted("all " + table)} JOIN (SELECT "#", first, last FROM lives '
                f'WHERE "table" = {_text(table)}) USING ("#")'
            )

    def _in_one_query(self, cuts: int) -> Iterator[Rows]:
        result = self._run(f"SELECT cuts.at, q.* FROM cuts, LATERAL ({self._at('cuts.at')}) q")
        by_cut: defaultdict[int, Rows] = defaultdict(Counter)
        rows = self._rows(result.select(range(1, result.num_columns)))
        for at, row in zip(result.column(0).to_pylist(), rows, strict=True):
            by_cut[at][row] += 1
        return (by_cut[at] for at in range(cuts))

    def _runs_in_one(self) -> bool:
        try:
            list(self._in_one_query(0))
        except InvalidSql:  # a query that DuckDB can't run in a LATERAL join
            return False
        return True

    def _at(self, at: str) -> str:
        tables = ", ".join(
            f"{_quoted(table)} AS (SELECT {', '.join(map(_quoted, columns))} "
            f"FROM {_quoted('live ' + table)} WHERE first <= {at} AND {at} < last)"
            for table, columns in self._columns.items()
        )
        return f"WITH {tables} SELECT * FROM ({self._query})"

    def _rows(self, table: pa.Table) -> Iterator[tuple[tuple[str, Any], ...]]:
        columns = [
            [(name, cell(value)) for value in column.to_pylist()]
            for name, column in zip(self._names, table.columns, strict=True)
        ]
        return zip(*columns, strict=True)

    def _run(self, query: str) -> pa.Table:
        import duckdb

        try:
            return self._connection.sql(query).to_arrow_table()
        except duckdb.Error as error:
            raise InvalidSql(
                f"view {self.definition.name}: DuckDB, which evaluates histories, can't run its "
                f"query: {str(error).splitlines()[0]}"
            ) from None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _connect() -> Any:
    try:
        import duckdb
    except ImportError:
        raise EngineUnavailable(
            "views in SQL are checked with DuckDB, which is not installed; "
            "pip install everview[check]"
        ) from None
    return duckdb.connect(config={"autoinstall_known_extensions": "false"})


def _parse(view: str, sql: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(sql, read="spark")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidSql(f"view {view}: {str(error).splitlines()[0]}") from None


def _tables(query: exp.Expr) -> set[str]:
    cte_names = {cte.alias_or_name.lower() for cte in query.find_all(exp.CTE)}
    return {table.name.lower() for table in query.find_all(exp.Table)} - cte_names


def _with_types(query: str, types: Mapping[str, str]) -> str:
    if not types:
        return query
    columns = {_quoted(name): type for name, type in types.items()}
    casts = ", ".join(f"CAST({name} AS {type}) AS {name}" for name, type in columns.items())
    return f"SELECT {casts} FROM ({query})"


def _type_of(table: str, column: str, values: list[Any]) -> pa.DataType:
    try:
        return pa.array(values).type
    except pa.ArrowException as error:
        raise InvalidHistory(
            f"table {table}, column {column}: its values have no one type ({error}); --db DB takes "
            "the types from a database"
        ) from None


def _without_zone(field: pa.Field) -> pa.Field:
    """DuckDB needs an extension for time zones; all timestamps here are in UTC."""
    return field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field


def _number(field: pa.Field) -> bool:
    kind = field.type
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in is_number)


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _text(value: str) -> str:
    escaped = value.replace("'", "''")
    return f"'{escaped}'"
