"""How to write keys on a command line.

A key of one column is the value itself, read by the column's type; a longer one is a JSON array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from everview.errors import WrongKey
from everview.intake import documents_to_arrow, text_to_arrow
from everview.intake.documents import parse_document
from everview.schema import TableSchema

Key = tuple[Any, ...]


def parse_keys(schema: TableSchema, texts: list[str]) -> list[Key]:
    """Keys with all their columns. Raises `WrongKey` or `WrongType`."""
    return [_parse(schema, text, len(schema.key), number) for number, text in enumerate(texts, 1)]


def parse_bound(schema: TableSchema, text: str | None) -> Key | None:
    """A key or its leading columns, for the start or stop of a scan."""
    return None if text is None else _parse(schema, text, None, 1)


def _parse(schema: TableSchema, text: str, width: int | None, number: int) -> Key:
    where = f"table {schema.name}, key {number}"
    if len(schema.key) == 1:
        rows = text_to_arrow(_leading(schema, 1), pa.table({schema.key[0]: [text]}), _at(where))
    else:
        values = _array(schema, text, width, where)
        leading = _leading(schema, len(values))
        document = dict(zip(leading.key, values, strict=True))
        rows = documents_to_arrow(leading, [document], _at(where))
    return tuple(rows.to_pylist()[0].values())


def _array(schema: TableSchema, text: str, width: int | None, where: str) -> list[Any]:
    try:
        values = parse_document(text)
    except ValueError:
        values = None
    most = len(schema.key)
    if isinstance(values, list) and len(values) in ({width} if width else range(1, most + 1)):
        return values
    example = "[" + ", ".join(f"<{name}>" for name in schema.key) + "]"
    raise WrongKey(f"{where}: {text} is not a key; write a JSON array {example}")


def _leading(schema: TableSchema, width: int) -> TableSchema:
    """A schema of the leading key columns only."""
    columns, key = schema.key_columns[:width], schema.key[:width]
    return replace(schema, columns=columns, key=key, widths=())


def _at(where: str) -> Any:
    return lambda row: where
