"""INSERT, UPDATE and DELETE.

The engine evaluates queries and conditions; the resulting rows are put and deleted as usual. A
number for a DECIMAL column is rounded to its scale, half up. Every other value must fit as it is; a
query may use CAST. INSERT replaces rows with the same key, as `put` does.
"""

from __future__ import annotations

import decimal
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from everview.errors import DataError, InvalidSql, UnsupportedSql
from everview.intake import rows_to_arrow
from everview.parsing import Statement
from everview.results.result import Result, count_rows, count_unchanged
from everview.schema import Column, TableSchema, quoted
from everview.sql.context import Context
from everview.sql.definitions import table_name
from everview.sql.families import over_members
from everview.sql.literals import plain_rows
from everview.sql.queries import evaluate

_EXACT = decimal.Context(prec=400, rounding=ROUND_HALF_UP)


def insert(context: Context, statement: Statement) -> Result:
    tree = _tree(statement, exp.Insert, "INSERT INTO table [(columns)] VALUES ... or SELECT ...")
    named = isinstance(tree.this, exp.Schema)
    target = tree.this.this if named else tree.this
    if tree.expression is None:
        raise InvalidSql(f"INSERT INTO {target.name} has no VALUES and no SELECT")
    if _has_more(tree, "this", "expression", "with_") or target.args.get("partition"):
        raise UnsupportedSql(
            "only INSERT INTO table [(columns)] VALUES ... or SELECT ... is supported; "
            "rows with the same key are replaced"
        )
    name = table_name(target)
    if (of_members := over_members(context, statement, target)) is not statement:
        return insert(context, of_members)
    schema = context.store.describe(name)
    columns = _insert_columns(schema, tree.this.expressions if named else None)
    values = tree.expression
    rows = plain_rows(statement, values) if isinstance(values, exp.Values) else None
    if rows is not None:
        new_rows = _table_of(schema, columns, rows)
    else:
        new_rows = _insert_query(context, statement, schema, columns, named)
    report = context.table(schema.name).put(new_rows)
    return _count_result(report.rows, "inserted", count_unchanged(report.unchanged))


def update(context: Context, statement: Statement) -> Result:
    tree = _tree(statement, exp.Update, "UPDATE table SET column = value, ... [WHERE ...]")
    if _has_more(tree, "this", "expressions", "where"):
        raise UnsupportedSql("UPDATE takes SET and WHERE only; use a subquery for other tables")
    if (of_members := over_members(context, statement, tree.this)) is not statement:
        return update(context, of_members)
    schema = context.store.describe(table_name(tree.this))
    sources = _assignments(statement, tree, schema)
    moved = [name for name in schema.key if name in sources]
    row = quoted(tree.this.alias or tree.this.name)
    expressions = [sources.get(name, f"{row}.{quoted(name)}") for name in schema.names]
    expressions += [f"{row}.{quoted(name)}" for name in (schema.key if moved else ())]
    set_at = _position(statement, TokenType.SET)
    target, where = statement.cut(1, set_at), _where(statement, set_at)
    result = evaluate(context, f"SELECT {_aliased(expressions)} FROM {target} {where}")
    width = len(schema.columns)
    after = _fit(schema, list(schema.columns), result.columns[:width], f"UPDATE {schema.name}")
    if moved:
        _move(context, schema, pa.table(result.columns[width:], names=list(schema.key)), after)
    elif after.num_rows:
        report = context.table(schema.name).put(after)
        return _count_result(report.rows, "updated", count_unchanged(report.unchanged, "so"))
    return _count_result(after.num_rows, "updated")


def delete(context: Context, statement: Statement) -> Result:
    tree = _tree(statement, exp.Delete, "DELETE FROM table [WHERE ...]")
    if _has_more(tree, "this", "where"):
        raise UnsupportedSql("DELETE takes WHERE only; use a subquery for other tables")
    if (of_members := over_members(context, statement, tree.this)) is not statement:
        return delete(context, of_members)
    schema = context.store.describe(table_name(tree.this))
    table = context.table(schema.name)
    if not tree.args.get("where"):
        return _count_result(table.delete(table.to_arrow(columns=schema.key)).rows, "deleted")
    row = quoted(tree.this.alias or tree.this.name)
    keys = _aliased([f"{row}.{quoted(name)}" for name in schema.key])
    from_at = _position(statement, TokenType.FROM)
    where_at = _position(statement, TokenType.WHERE)
    target = statement.cut(from_at, where_at)
    rows = evaluate(context, f"SELECT {keys} {target} {_where(statement, from_at)}")
    return _count_result(table.delete(rows.rename_columns(list(schema.key))).rows, "deleted")


def _tree(statement: Statement, kind: type[exp.Expr], form: str) -> Any:
    if not isinstance(statement.tree, kind):
        raise InvalidSql(f"the statement can't be read; write {form}")
    return statement.tree


def _has_more(tree: exp.Expr, *known: str) -> bool:
    """Whether the statement has other clauses than these; ignoring them would be wrong."""
    return any(value for name, value in tree.args.items() if name not in known)


def _count_result(count: int, what: str, besides: str = "") -> Result:
    return Result(message=f"{count_rows(count)} {what}{besides}", count=count)


def _insert_columns(schema: TableSchema, names: list[exp.Expr] | None) -> list[Column]:
    if names is None:
        return list(schema.columns)
    columns = [schema.column(name.name) for name in names]
    if len(set(columns)) < len(columns):
        raise InvalidSql(f"INSERT INTO {schema.name}: a column is named twice")
    return columns


def _table_of(schema: TableSchema, columns: list[Column], rows: list[list[Any]]) -> pa.Table:
    for number, row in enumerate(rows, 1):
        if len(row) != len(columns):
            raise _wrong_width(schema, columns, f"row {number} has {_count(row, 'value')}")
    documents = [
        {
            column.name: _rounded_value(value, column.type)
            for column, value in zip(columns, row, strict=True)
        }
        for row in rows
    ]
    return rows_to_arrow(schema, documents, f"INSERT INTO {schema.name}, row {{}}".format)


def _insert_query(
    context: Context, statement: Statement, schema: TableSchema, columns: list[Column], named: bool
) -> pa.Table:
    """The result of an INSERT's query: the WITH before it, and the text after table and columns."""
    insert_at = _position(statement, TokenType.INSERT)
    at = _position(statement, TokenType.INTO, insert_at) + 1
    if statement.tokens[at].token_type == TokenType.TABLE:
        at += 1
    at += 1
    if named:
        at = statement.after_group(at)
    result = evaluate(context, f"{statement.cut(0, insert_at)} {statement.cut(at)}")
    if result.num_columns != len(columns):
        raise _wrong_width(schema, columns, f"the query has {_count(result.columns, 'column')}")
    return _fit(schema, columns, result.columns, f"INSERT INTO {schema.name}")


def _count(things: list[Any], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _wrong_width(schema: TableSchema, columns: list[Column], what: str) -> InvalidSql:
    names = ", ".join(column.name for column in columns)
    return InvalidSql(f"INSERT INTO {schema.name}: {what}, for {len(columns)} to fill ({names})")


def _assignments(statement: Statement, tree: exp.Update, schema: TableSchema) -> dict[str, str]:
    """The text of each new value by column."""
    set_at = _position(statement, TokenType.SET)
    pieces = statement.pieces(set_at + 1, statement.find(TokenType.WHERE, set_at))
    if len(pieces) != len(tree.expressions):
        raise InvalidSql(f"UPDATE {schema.name}: write SET column = value, ...")
    sources: dict[str, str] = {}
    for assignment, (start, stop) in zip(tree.expressions, pieces, strict=True):
        if not isinstance(assignment, exp.EQ) or not isinstance(assignment.this, exp.Column):
            raise InvalidSql(f"{statement.cut(start, stop)}: write column = value")
        name = schema.column(assignment.this.name).name
        if name in sources:
            raise InvalidSql(f"UPDATE {schema.name}: column {name} is assigned twice")
        equals = _position(statement, TokenType.EQ, start)
        sources[name] = f"({statement.cut(equals + 1, stop)})"
    return sources


def _position(statement: Statement, kind: TokenType, start: int = 0) -> int:
    position = statement.find(kind, start)
    if position is None:
        raise InvalidSql(f"{kind.name} is missing in: {statement.text[:80]}")
    return position


def _where(statement: Statement, start: int) -> str:
    position = statement.find(TokenType.WHERE, start)
    return "" if position is None else statement.cut(position)


def _aliased(expressions: list[str]) -> str:
    return ", ".join(f"{text} AS `_{number}`" for number, text in enumerate(expressions))


def _move(context: Context, schema: TableSchema, before: pa.Table, after: pa.Table) -> None:
    """Give rows new keys: write them, then delete the old keys that are free now."""
    table = context.table(schema.name)
    old, new = _key_tuples(before), _key_tuples(after.select(schema.key))
    if len(set(new)) < len(new):
        raise _duplicate_key(schema, next(key for at, key in enumerate(new) if key in new[:at]))
    leaving, arriving = set(old).difference(new), list(set(new).difference(old))
    if arriving and (existing := table.get_many(arriving, schema.key)).num_rows:
        raise _duplicate_key(schema, _key_tuples(existing)[0])
    table.put(after)
    if leaving:
        table.delete(list(leaving))


def _key_tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _duplicate_key(schema: TableSchema, key: tuple[Any, ...]) -> DataError:
    values = ", ".join(f"{name} = {value}" for name, value in zip(schema.key, key, strict=True))
    return DataError(
        f"UPDATE {schema.name}: two rows would have the key {values}; nothing was changed"
    )


def _fit(
    schema: TableSchema, columns: list[Column], values: list[pa.ChunkedArray], place: str
) -> pa.Table:
    """Convert columns from the engine to rows of the table."""
    rounded = [_rounded(array, column.type) for array, column in zip(values, columns, strict=True)]
    table = pa.table(rounded, names=[column.name for column in columns])
    return rows_to_arrow(schema, table, f"{place}, row {{}}".format)


def _rounded(values: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_decimal(target):
        return values
    if pa.types.is_decimal(values.type) and values.type.scale > target.scale:
        return pc.round(values, target.scale, "half_towards_infinity")
    if pa.types.is_floating(values.type):
        rounded = [_rounded_value(value, target) for value in values.to_pylist()]
        try:
            return pa.chunked_array([rounded], target)
        except pa.ArrowException:  # too large, or no number: refused with its row later on
            return values
    return values


def _rounded_value(value: Any, target: pa.DataType) -> Any:
    if not pa.types.is_decimal(target) or not isinstance(value, float | Decimal):
        return value
    try:
        return _EXACT.quantize(Decimal(str(value)), Decimal(1).scaleb(-target.scale))
    except InvalidOperation:
        return value
