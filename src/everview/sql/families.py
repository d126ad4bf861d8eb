"""Families: views with parameters, and the tables of their members.

`CREATE MATERIALIZED VIEW spend (region STRING) AS SELECT ... WHERE region = :region` is a view over
its tables and over a table `spend_members`, which has a row for each member: the query is computed
for each of these rows, and members come and go as rows do. Spark takes the two apart again, so that
members share what is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from everview.catalog import VIEWS, Family
from everview.errors import InUse, InvalidSql, SqlError, TableExists, UnsupportedSql, suggestion
from everview.parsing import Statement
from everview.schema import Column, TableSchema, quoted, sql_name
from everview.sql.context import Context
from everview.sql.create_view import CreateView

MEMBER, ROWS = "everview_member", "everview_rows"
_REGIONS = 1  # members are few, and a region has files of its own


def as_family(context: Context, creation: CreateView) -> CreateView:
    """What a CREATE says, with the query over the table of members if the view has parameters."""
    record = context.store.catalog.get(VIEWS[creation.name])
    before = record.definition.family if record and creation.replaces else None
    if not creation.parameters:
        _check_no_parameters(creation.definition.query)
        if creation.sharing == "selection":
            raise UnsupportedSql(
                "sharing = 'selection' is for the members of a view with parameters, and this one "
                "has none; leave it out, or write 'none' for a view that shares with no others"
            )
        if before is not None:
            raise UnsupportedSql(
                f"view {creation.name} has parameters, and one without can't replace it; drop it "
                f"first, with DROP VIEW {creation.name}"
            )
        return creation
    if creation.sharing == "none":
        raise UnsupportedSql(
            "the members of a view with parameters share at least a selection; write sharing = "
            "'selection', or a view without parameters for each"
        )
    if creation.definition.is_full:
        raise UnsupportedSql(
            "a view with parameters can't have refresh = 'full'; leave the option out"
        )
    if before is not None:
        _check_same(creation, context.store.describe(before.members))
    members = before.members if before else f"{creation.name}_members"
    names = tuple(column.name for column in creation.parameters)
    family = Family(creation.definition.query, members, names, creation.sharing)
    query = _over_members(creation.name, family, creation.parameters)
    return replace(creation, definition=replace(creation.definition, query=query, family=family))


def _check_same(creation: CreateView, members: TableSchema) -> None:
    if _types(members) != [(column.name, column.type) for column in creation.parameters]:
        parameters = ", ".join(f"{c.name} {sql_name(c.type)}" for c in members.columns)
        raise UnsupportedSql(
            f"view {creation.name} has the parameters ({parameters}), and what replaces it needs "
            f"the same; or drop it with its members first, with DROP VIEW {creation.name}"
        )


def _types(table: TableSchema) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in table.columns]


def _check_no_parameters(query: str) -> None:
    for _, name in _parameters(Statement(query)):
        raise InvalidSql(
            f"{_place(name)}: the view has no parameter :{name.text}; name its parameters with "
            f"their types after its own name, as in VIEW name ({name.text} STRING) AS ..."
        )


def _place(name: Token) -> str:
    return f"line {name.line}, column {name.col - len(name.text)}"


def _over_members(view: str, family: Family, parameters: Sequence[Column]) -> str:
    """The query of a family over the table of its members."""
    text = family.text
    names = {column.name.lower(): quoted(column.name) for column in parameters}
    used: set[str] = set()
    query, at = "", 0
    for colon, name in _parameters(Statement(text)):
        if name.text.lower() not in names:
            raise InvalidSql(
                f"{_place(name)}: the view has no parameter "
                f":{name.text}; {suggestion(name.text, names)}name it with its type, as in VIEW "
                f"{view} ({name.text} STRING)"
            )
        used.add(name.text.lower())
        query += f"{text[at : colon.start]}{MEMBER}.{names[name.text.lower()]}"
        at = name.end + 1
    if unused := [column.name for column in parameters if column.name.lower() not in used]:
        raise InvalidSql(
            f"the query of the view has no :{unused[0]}; write it where its value belongs, or "
            "leave the parameter out"
        )
    shown = ", ".join(f"{MEMBER}.{quoted(column.name)}" for column in parameters)
    over = f"{quoted(family.members)} AS {MEMBER}, LATERAL (\n{query}{text[at:]}\n) AS {ROWS}"
    return f"SELECT {shown}, {ROWS}.* FROM {over}"


def _parameters(statement: Statement) -> Iterator[tuple[Token, Token]]:
    """The colon and the name of each `:name`, and not of types as in STRUCT<a:INT>."""
    tokens = statement.tokens
    for before, colon, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if colon.token_type == TokenType.COLON and name.start == colon.end + 1:
            is_word = before.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            is_beside = before.end + 1 == colon.start and before.text[-1:].isalnum()
            if not (is_word or is_beside):
                yield colon, name


@contextmanager
def members_made(context: Context, creation: CreateView) -> Iterator[None]:
    """Inside the block there is the table of a family's members. If the block fails, a table that
    was made for it is deleted again.

    A table that is there already may have rows: these are members from the start.
    """
    family = creation.definition.family
    if family is None:
        yield
        return
    columns, key = creation.parameters, family.parameters
    schema = TableSchema.of(family.members, columns, key, regions=_REGIONS)
    try:
        context.store.create_table(schema)
    except TableExists:
        _check_fits(context, creation.name, schema)
        yield
        return
    try:
        yield
    except BaseException:
        with suppress(InUse):  # by the same view, which another process has created meanwhile
            context.store.drop_table(family.members)
        raise


def _check_fits(context: Context, view: str, wanted: TableSchema) -> None:
    name = wanted.name
    if name.lower() in map(str.lower, context.views()):
        raise TableExists(
            f"there is a view {name}, and the members of view {view} need a table of this name; "
            f"give view {view} another name"
        )
    found = context.store.describe(name)
    if (_types(found), found.key) != (_types(wanted), wanted.key):
        has, needs = (_described(schema) for schema in (found, wanted))
        raise TableExists(
            f"there is a table {name} with {has}, and the members of view {view} need one with "
            f"{needs}; drop the table first, or give the view another name"
        )


def _described(schema: TableSchema) -> str:
    columns = ", ".join(f"{column.name} {sql_name(column.type)}" for column in schema.columns)
    return f"({columns}) and the key ({', '.join(schema.key)})"


def explained(error: SqlError, family: Family) -> SqlError:
    """An error about the query of a family, for someone who did not write its inner form."""
    text = str(error)
    for name in family.parameters:
        if f"two columns {name};" in text:
            return InvalidSql(
                f"the view's first columns are its parameters, and its query has a column {name}, "
                f"too; leave that out, as with * EXCEPT ({name}), or name it AS else"
            )
    if MEMBER not in text and "CORRELATED" not in text:
        return error
    return UnsupportedSql(
        "a parameter stands where its value can't differ from member to member: inside a subquery "
        "of the query, in LIMIT, or in what GROUP BY names; use it in WHERE, HAVING, ON or SELECT "
        f"of the query itself. Spark says: {text.splitlines()[0][:200]}"
    )


def over_members(context: Context, statement: Statement, target: exp.Expr) -> Statement:
    """An INSERT, UPDATE or DELETE of a family as one of the table of its members."""
    view = context.store.catalog.get(VIEWS[target.name]) if target.name else None
    if view is None or view.definition.family is None:
        return statement
    at = next(
        token
        for token in statement.tokens
        if token.text == target.name and token.token_type != TokenType.STRING
    )
    name = quoted(view.definition.family.members)
    has_name = statement.verb in ("UPDATE", "DELETE") and not target.alias
    name += f" AS {quoted(target.name)}" if has_name else ""
    return Statement(statement.text[: at.start] + name + statement.text[at.end + 1 :])


def tables_of_members(context: Context, views: Sequence[str]) -> list[str]:
    """The tables of the members of some views. Raises `InUse` if other views read one."""
    records = context.store.catalog.all(VIEWS).values()
    gone = [view for view in records if view.name in views]
    tables = [view.definition.family.members for view in gone if view.definition.family]
    for other in records:
        if read := [table for table in tables if table in other.tables and other not in gone]:
            raise InUse(
                f"view {other.name} reads the table {read[0]}, which has the members of the view; "
                f"drop it first, with DROP VIEW {other.name}"
            )
    return tables
