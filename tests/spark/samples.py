"""Tables and rows that the tests of the source share."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everview import Database, Table

ALL_TYPES = {
    "id": "BIGINT",
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "single": "FLOAT",
    "real": "DOUBLE",
    "amount": "DECIMAL(12,2)",
    "wide": "DECIMAL(38,10)",
    "name": "STRING",
    "raw": "BINARY",
    "day": "DATE",
    "moment": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "span": "INTERVAL DAY TO SECOND",
}
VALUES: dict[str, list[Any]] = {
    "flag": [True, False],
    "tiny": [-128, 0, 127],
    "small": [-32768, 7],
    "whole": [-(2**31), 0, 5],
    "single": [0.0, -0.0, 1.5, math.nan, -math.inf],
    "real": [0.0, -0.0, 1.5, math.nan, math.inf],
    "amount": [Decimal("-1.10"), Decimal("0.00"), Decimal("9999999999.99")],
    "wide": [Decimal("1234567890123456789012345678.0123456789")],
    "name": ["", "a", "ab", "b", "\N{SNOWMAN}", "zz%_"],
    "raw": [b"", b"\x00\xff", b"a"],
    "day": [dt.date(1969, 12, 31), dt.date(2024, 2, 29)],
    "moment": [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    ],
    "local": [dt.datetime(1900, 1, 1), dt.datetime(2024, 2, 29, 12, 0, 0, 1)],
    "span": [dt.timedelta(-1), dt.timedelta(), dt.timedelta(400, 3, 1)],
}


def rows_of_all_types(count: int) -> list[dict[str, Any]]:
    """Rows in which every column takes all its sample values and NULL, out of step."""
    choices = {name: [*values, None] for name, values in VALUES.items()}
    return [
        {"id": i} | {name: values[i % len(values)] for name, values in choices.items()}
        for i in range(count)
    ]


def table_of_all_types(db: Database, count: int = 60) -> Table:
    table = db.create_table("all_types", ALL_TYPES, key="id")
    table.put(rows_of_all_types(count))
    return table


def as_text(table: pa.Table) -> list[str]:
    """The rows in an order of their own, as text: NaN equals NaN, and -0.0 is not 0.0."""
    return sorted(map(repr, table.to_pylist()))
