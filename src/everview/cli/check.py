"""The command check: which level of consistency a recorded history reaches."""

from __future__ import annotations

import sys

import click
import pyarrow as pa

import everview
from everview.check import Definition, History, Level, check_history
from everview.check.levels import BOUND
from everview.check.report import as_document, as_text
from everview.cli.views import DIVERGES
from everview.errors import InvalidHistory
from everview.intake.documents import format_document
from everview.schema import TableSchema, sql_name

UNDECIDED = 1
_DUCKDB = {"STRING": "VARCHAR", "BINARY": "BLOB", "TIMESTAMP_NTZ": "TIMESTAMP"}
_LEVELS = [str(level) for level in Level if level is not Level.NONE]


@click.command()
@click.argument("histories", metavar="HISTORY...", nargs=-1, required=True, type=click.Path())
@click.option("--view", "views", multiple=True, metavar='NAME="SELECT ..."', help="A view's query.")
@click.option("--key", "keys", multiple=True, metavar="NAME=COLUMN,...", help="The key of a view.")
@click.option("--db", type=click.Path(), help="Database of the views.")
@click.option(
    "--level",
    type=click.Choice(_LEVELS),
    default="strong",
    show_default=True,
    help="The level that the views must reach.",
)
@click.option("--records", is_flag=True, help="Also check each record of views that have a key.")
@click.option(
    "--bound",
    type=click.IntRange(min=1),
    default=BOUND,
    show_default=True,
    help="The greatest number of table states that a search looks at.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
def check(
    histories: tuple[str, ...],
    views: tuple[str, ...],
    keys: tuple[str, ...],
    db: str | None,
    level: str,
    records: bool,
    bound: int,
    as_json: bool,
) -> None:
    """Check a recorded HISTORY: how consistently did the views follow their tables?

    A HISTORY is one or more files that everview.check.Recorder wrote. The levels are convergence
    (the last read is right), weak (every read shows a state that the tables had), strong (and reads
    never go back to an older state) and complete (and no state is left out). If a view misses a
    level, the command shows a small counterexample. It exits with 3 if a view does not reach
    --level, and with 1 if it can't decide that.

    \b
    Example:
      echo '{"wrote": "items", "key": 1, "row": {"id": 1, "n": 5}, "region": 0, "sequence": 1}' > h
      echo '{"read": "big", "epoch": 2, "rows": [{"id": 1}]}' >> h
      everview check h --view big="SELECT id FROM items WHERE n > 3"
    """
    history = History.load(*histories)
    queries = dict(_split_option("--view", view) for view in views)
    columns = {
        name: tuple(names.split(","))
        for name, names in (_split_option("--key", key) for key in keys)
    }
    definitions = [Definition(name, sql, columns.get(name, ())) for name, sql in queries.items()]
    schemas: dict[str, TableSchema] = {}
    if db is not None:
        with everview.open(db, readonly=True) as database:
            schemas = {name: database.table(name).schema for name in database.tables}
            definitions += [
                _definition(database.view(name), columns.get(name))
                for name in _views_read(history) & set(database.views) - queries.keys()
            ]
    if unknown := _views_read(history) - {definition.name for definition in definitions}:
        name = min(unknown)
        raise InvalidHistory(
            f"the history reads view {name}, but its query is not known; give the query with "
            f'--view {name}="SELECT ...", or the database of the view with --db'
        )
    verdicts = check_history(history, definitions, schemas, records, bound)
    expected_level = Level[level.upper()]
    if as_json:
        click.echo(format_document({"verdicts": [as_document(verdict) for verdict in verdicts]}))
    else:
        click.echo(as_text(verdicts, expected_level))
    outcomes = [verdict.holds(expected_level) for verdict in verdicts]
    sys.exit(DIVERGES if False in outcomes else UNDECIDED if None in outcomes else 0)


def _split_option(option: str, text: str) -> tuple[str, str]:
    name, separator, rest = text.partition("=")
    if not separator or not name.strip() or not rest.strip():
        raise click.BadParameter(f"{text!r} has no NAME=... in it", param_hint=option)
    return name.strip(), rest.strip()


def _views_read(history: History) -> set[str]:
    return {read.view for read in history.reads}


def _definition(view: everview.View, key: tuple[str, ...] | None) -> Definition:
    types = {field.name: _duckdb_type(field.type) for field in view.schema}
    columns = {table.lower(): names for table, names in view.table_columns.items()}
    return Definition(view.name, view.sql, key or view.key, types, columns)


def _duckdb_type(arrow: pa.DataType) -> str:
    name = sql_name(arrow)
    return _DUCKDB.get(name, name)
