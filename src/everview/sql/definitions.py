"""CREATE TABLE, ALTER TABLE, DROP TABLE, DESCRIBE and SHOW TABLES."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.expressions import DType

from everview.errors import InvalidSql, OutOfReach, TableExists, TableNotFound, UnsupportedSql
from everview.parsing import Statement
from everview.results.result import Result
from everview.schema import DEFAULT_REGIONS, Column, TableSchema, arrow_type, sql_name
from everview.sql.context import Context

_FORM = "CREATE TABLE name (column TYPE [NOT NULL], ..., PRIMARY KEY (column, ...))"
_OPTIONS = "regions = number, append_only = true"
_ALTER = "ALTER TABLE name ADD COLUMN column TYPE, or ADD COLUMNS (column TYPE, ...)"
_TYPES = "types such as BIGINT, DOUBLE, DECIMAL(12,2), STRING, DATE, TIMESTAMP and ARRAY<STRING>"
_SHOW = re.compile(r"SHOW\s+TABLES(\s+LIKE\s+'(?P<pattern>[^']*)')?", re.IGNORECASE)
_TRUTHS = {"true": True, "false": False}
_STORED = {
    *(DType.BOOLEAN, DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT),
    *(DType.FLOAT, DType.DOUBLE, DType.DECIMAL, DType.TEXT, DType.VARCHAR, DType.CHAR),
    *(DType.BINARY, DType.DATE, DType.TIMESTAMPTZ, DType.TIMESTAMPLTZ, DType.TIMESTAMPNTZ),
    *(DType.ARRAY, DType.STRUCT, DType.MAP),
}


def create(context: Context, statement: Statement) -> Result:
    try:
        tree = statement.tree
    except InvalidSql as error:
        raise InvalidSql(f"{error}; write {_FORM}, with {_TYPES}") from None
    if not isinstance(tree, exp.Create):
        raise InvalidSql(f"this CREATE can't be read; write {_FORM}")
    _check_supported(tree)
    name = table_name(tree.this.this)
    columns, key = _columns_and_key(tree.this)
    try:
        context.store.create_table(TableSchema.of(name, columns, key, **_options(tree)))
    except TableExists:
        if not tree.args.get("exists") or name.lower() in map(str.lower, context.views()):
            raise
        return Result(message=f"table {name} exists already")
    return Result(message=f"table {name} created")


def alter(context: Context, statement: Statement) -> Result:
    """ALTER TABLE ... ADD COLUMN, the only change of a table that is supported."""
    words = [token.text.upper() for token in statement.tokens[:5]]
    adds = words[3:] in (["ADD", "COLUMN"], ["ADD", "COLUMNS"])
    if words[1:2] != ["TABLE"] or not adds:
        raise UnsupportedSql(
            f"the only change to a table is {_ALTER}; for other changes create a new table, then "
            "INSERT INTO it SELECT ... from this one"
        )
    table = context.table(statement.tokens[2].text)
    columns = [_added(part) for part in _added_parts(statement)]
    table.add_columns(columns)
    names = ", ".join(column.name for column in columns)
    return Result(message=f"table {table.name}: added {names}, which is NULL in existing rows")


def drop(context: Context, statement: Statement) -> Result:
    tree = statement.tree
    if not isinstance(tree, exp.Drop) or tree.args.get("kind") != "TABLE":
        kind = tree.args.get("kind") or "something else"
        raise UnsupportedSql(f"DROP {kind} is not supported, only DROP TABLE [IF EXISTS] name")
    tables = tree.args["tables"]
    if len(tables) != 1:
        raise UnsupportedSql("DROP TABLE takes one table; write a statement for each")
    name = table_name(tables[0])
    try:
        context.store.drop_table(name)
    except TableNotFound:
        if not tree.args.get("exists"):
            raise
        return Result(message=f"there is no table {name}")
    return Result(message=f"table {name} dropped")


def describe(context: Context, statement: Statement) -> Result:
    """One row for each column of a table or view; `key` is its position in the key."""
    tree = statement.tree
    if not isinstance(tree, exp.Describe) or not isinstance(tree.this, exp.Table):
        raise UnsupportedSql("DESCRIBE takes the name of a table or view")
    if tree.args.get("kind") not in (None, "TABLE") or tree.args.get("style"):
        raise UnsupportedSql("DESCRIBE has no options here; write DESCRIBE name")
    name = table_name(tree.this)
    if name.lower() in map(str.lower, context.views()):
        view = context.view(name)
        return _described(view.schema, view.key, f"{view.name} is a view: {view.sql}")
    schema = context.store.describe(name)
    only = "append-only: rows can't be changed or deleted" if schema.append_only else ""
    return _described(schema.arrow, schema.key, only)


def _described(columns: pa.Schema, key: Sequence[str], message: str) -> Result:
    place = {name: number for number, name in enumerate(key, 1)}
    rows = {
        "column": pa.array(columns.names, pa.string()),
        "type": pa.array([sql_name(column.type) for column in columns], pa.string()),
        "nullable": pa.array([column.nullable for column in columns], pa.bool_()),
        "key": pa.array([place.get(name) for name in columns.names], pa.int32()),
    }
    return Result(pa.table(rows), message)


def show(context: Context, statement: Statement) -> Result:
    """SHOW TABLES, with LIKE 'pattern' where * stands for any characters."""
    match = _SHOW.fullmatch(statement.text)
    if match is None:
        raise UnsupportedSql("SHOW takes TABLES [LIKE 'pattern'], or VIEWS")
    parts = (match["pattern"] or "*").split("*")
    pattern = re.compile(".*".join(map(re.escape, parts)), re.IGNORECASE)
    hidden = context.store.catalog.hidden_tables()
    tables = [name for name in context.tables() if name not in hidden]
    names = [name for name in tables if pattern.fullmatch(name)]
    return Result(pa.table({"table": pa.array(names, pa.string())}))


def table_name(table: exp.Expr) -> str:
    """The name of a table that must be one of ours."""
    if not isinstance(table, exp.Table) or table.args.get("db"):
        text = table.sql(dialect="spark")
        raise UnsupportedSql(f"{text}: write the name of a table without a database and a dot")
    return table.name


def _check_supported(tree: exp.Create) -> None:
    properties = tree.args.get("properties")
    clauses = properties.expressions if properties else []
    if tree.args["kind"] != "TABLE":
        raise UnsupportedSql(f"CREATE {tree.args['kind']} is not supported, only CREATE TABLE")
    if tree.args.get("expression"):
        raise UnsupportedSql(
            "CREATE TABLE ... AS SELECT is not supported, since a table needs a primary key; "
            "create the table, then INSERT INTO name SELECT ..."
        )
    if tree.args.get("replace"):
        raise UnsupportedSql("CREATE OR REPLACE is not supported; DROP TABLE IF EXISTS first")
    if not isinstance(tree.this, exp.Schema):
        raise InvalidSql(f"the table has no columns; write {_FORM}")
    for clause in clauses:
        if type(clause) is not exp.Property:
            text = clause.sql(dialect="spark")
            raise UnsupportedSql(f"{text} is not supported; write {_FORM} [WITH ({_OPTIONS})]")


def _columns_and_key(schema: exp.Schema) -> tuple[list[Column], list[str]]:
    columns: list[Column] = []
    keys: list[list[str]] = []
    for part in schema.expressions:
        if isinstance(part, exp.ColumnDef):
            column, is_key = _column(part)
            columns.append(column)
            keys += [[column.name]] if is_key else []
        else:
            keys.append(_key(part))
    if len(keys) > 1:
        raise InvalidSql("more than one PRIMARY KEY; write one PRIMARY KEY (column, ...)")
    return columns, keys[0] if keys else []


def columns_of(text: str) -> tuple[Column, ...]:
    """The columns in `(name TYPE, ...)`, which have no rules."""
    try:
        tree = Statement(f"CREATE TABLE t {text}").tree
    except InvalidSql:
        tree = None
    parts = tree.this.expressions if isinstance(tree, exp.Create) else []
    if not parts or any(not isinstance(part, exp.ColumnDef) for part in parts):
        raise InvalidSql(f"{text} can't be read; write (name TYPE, ...), with {_TYPES}")
    if ruled := next((part for part in parts if part.args.get("constraints")), None):
        raise InvalidSql(f"{ruled.sql(dialect='spark')}: write a name and a type only")
    return tuple(_column(part)[0] for part in parts)


def _column(part: exp.ColumnDef) -> tuple[Column, bool]:
    nullable, is_key = True, False
    for constraint in part.args.get("constraints") or []:
        rule = constraint.args["kind"]
        if isinstance(rule, exp.NotNullColumnConstraint):
            nullable = bool(rule.args.get("allow_null"))
        elif isinstance(rule, exp.PrimaryKeyColumnConstraint):
            is_key = True
        else:
            name = type(rule).__name__.removesuffix("ColumnConstraint").upper()
            raise UnsupportedSql(
                f"column {part.name}: {name} is not supported, only NOT NULL and PRIMARY KEY"
            )
    kind = part.args.get("kind")
    if kind is None:
        raise InvalidSql(f"column {part.name} has no type, such as {part.name} BIGINT")
    known = kind.this in _STORED or isinstance(kind.this, exp.Interval)
    type_ = kind.sql(dialect="spark") if known else str(getattr(kind.this, "name", kind.this))
    return Column(part.name, arrow_type(type_), nullable), is_key


def _added_parts(statement: Statement) -> list[exp.Expr]:
    """The columns that an ALTER TABLE adds, with or without parentheses."""
    text = statement.cut(5)
    try:
        tree = Statement(f"CREATE TABLE t {text if text.startswith('(') else f'({text})'}").tree
    except InvalidSql:
        tree = None
    more = isinstance(tree, exp.Create) and {k for k, v in tree.args.items() if v}
    if tree is None or more != {"this", "kind"} or not tree.this.expressions:
        raise InvalidSql(f"{text or 'nothing'} can't be added to a table; write {_ALTER}")
    return list(tree.this.expressions)


def _added(part: exp.Expr) -> Column:
    if not isinstance(part, exp.ColumnDef) or not isinstance(part.this, exp.Identifier):
        text = part.sql(dialect="spark")
        raise UnsupportedSql(f"{text} can't be added to a table; write {_ALTER}, with {_TYPES}")
    if part.args.get("position"):
        raise UnsupportedSql(
            f"column {part.name}: a new column is the last one; leave out FIRST and AFTER"
        )
    for constraint in part.args.get("constraints") or []:
        rule = constraint.args["kind"]
        if not isinstance(rule, exp.NotNullColumnConstraint):
            remedy = "and UPDATE the rows" if isinstance(rule, exp.DefaultColumnConstraint) else ""
            raise UnsupportedSql(
                f"column {part.name}: {rule.sql(dialect='spark')} is not supported for a new "
                f"column; leave it out {remedy}".rstrip()
            )
    return _column(part)[0]


def _key(part: exp.Expr) -> list[str]:
    if isinstance(part, exp.Constraint) and len(part.expressions) == 1:
        part = part.expressions[0]
    if not isinstance(part, exp.PrimaryKey):
        raise UnsupportedSql(
            f"{part.sql(dialect='spark')} is not supported; a table has columns and a PRIMARY KEY"
        )
    return [column.name for column in part.expressions]


def _options(tree: exp.Create) -> dict[str, Any]:
    """WITH (regions = 8, append_only = true), or the same in TBLPROPERTIES."""
    options: dict[str, Any] = {"regions": DEFAULT_REGIONS}
    properties = tree.args.get("properties")
    for option in properties.expressions if properties else []:
        name, value = option.this.name.lower(), option.args["value"]
        text = value.name if isinstance(value, exp.Literal) else value.sql(dialect="spark")
        if name == "regions" and text.isdigit():
            options["regions"] = int(text)
        elif name == "append_only" and text.lower() in _TRUTHS:
            options["append_only"] = _TRUTHS[text.lower()]
        elif name == "observers":
            raise OutOfReach(
                "an observer is a program, and SQL names none; create the table in Python, with "
                "db.create_table(name, columns, key, observers=['module:Class'])"
            )
        else:
            raise InvalidSql(f"option {name} = {text}: the options are {_OPTIONS}")
    return options
