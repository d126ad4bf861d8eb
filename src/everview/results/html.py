"""Tables, views and results as notebooks show them: the first rows, with the types of columns."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import pyarrow as pa

from everview.errors import EverviewError
from everview.results.result import cells_of, count_rows, is_number
from everview.schema import sql_name

SHOWN_ROWS, SHOWN_WIDTH = 20, 120
_NULL = '<span style="opacity: 0.5; font-style: italic">NULL</span>'


def html_of(handle: Any, first_rows: Callable[[], tuple[pa.Table, int]]) -> str:
    """HTML for a notebook: the repr of `handle`, then some rows and the number of all.

    If `first_rows` fails, its error takes the place of the rows.
    """
    title = f"<div><code>{escape(repr(handle))}</code></div>"
    try:
        return f"{title}\n{html_table(*first_rows())}"
    except EverviewError as error:
        return f"{title}\n<div>{escape(str(error))}</div>"


def html_table(rows: pa.Table, total: int) -> str:
    """The rows as an HTML table, and how many more there are."""
    heads = [
        f'<th style="text-align: {_side(field)}">{escape(name)}<br>'
        f'<span style="font-weight: normal; opacity: 0.6">{escape(_type(field))}</span></th>'
        for name, field in zip(_shorten(rows.column_names), rows.schema, strict=True)
    ]
    columns = [
        [_cell(text, _side(field)) for text in cells_of(column, SHOWN_WIDTH, null=None)]
        for field, column in zip(rows.schema, rows.slice(0, SHOWN_ROWS).columns, strict=True)
    ]
    lines = [f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True)]
    rest = total - len(lines)
    footer = f"… {rest:,} more" if rest > 0 else count_rows(total)
    head = f"<thead><tr>{''.join(heads)}</tr></thead>"
    body = "\n".join(lines)
    return f"<table>\n{head}\n<tbody>\n{body}\n</tbody>\n</table>\n<div>{footer}</div>"


def _shorten(names: list[str]) -> list[str]:
    return [text or "" for text in cells_of(pa.array(names, pa.string()), SHOWN_WIDTH)]


def _cell(text: str | None, side: str) -> str:
    content = _NULL if text is None else escape(text)
    return f'<td style="text-align: {side}">{content}</td>'


def _side(field: pa.Field) -> str:
    return "right" if is_number(field.type) else "left"


def _type(field: pa.Field) -> str:
    """The SQL name of a type, or Arrow's of one that no table has."""
    try:
        return sql_name(field.type)
    except (EverviewError, KeyError, AttributeError):
        return str(field.type)
