"""Rows that hurt: one table with two columns of each type, whose values meet in many pairs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

_LONG = "x" * 300
_DAYS = [
    *("0001-01-01", "1582-10-04", "1582-10-15", "1600-02-29", "1677-09-21", "1969-12-31"),
    *("1970-01-01", "2000-02-29", "2020-12-31", "2020-01-31", "2262-04-11", "2262-04-13"),
    "9999-12-31",
]
_MOMENTS = [f"{day} {time}" for day in _DAYS[::2] for time in ("00:00:00", "23:59:59.123456")]
_UTC = dt.UTC


def _whole(bits: int) -> list[Any]:
    bound = 2 ** (bits - 1)
    return [0, 1, -1, 2, 3, 7, -5, 12, bound - 1, -bound, None]


# by the name of a column: its type in SQL, its type in Arrow, and its values
POOLS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "bool": ("BOOLEAN", pa.bool_(), [True, False, None]),
    "byte": ("TINYINT", pa.int8(), _whole(8)),
    "short": ("SMALLINT", pa.int16(), _whole(16)),
    "int": ("INT", pa.int32(), _whole(32)),
    "few": ("INT", pa.int32(), [0, 1, -1, 2, 3, 5, None]),  # where large ones take all memory
    "long": ("BIGINT", pa.int64(), [*_whole(64), 10**12, -(10**12), 1_600_000_000]),
    "float": ("FLOAT", pa.float32(), [0.0, -0.0, 1.5, float("nan"), float("inf"), 0.1, None]),
    "double": (
        "DOUBLE",
        pa.float64(),
        [
            *(0.0, -0.0, 1.5, -2.5, 0.5, float("nan"), float("inf"), -float("inf"), 1e300, 5e-324),
            *(1e20, 0.1, 1e-7, 12345678.9, None, 2.0, 1.005, 2.675, -0.3),
        ],
    ),
    "dec": (
        "DECIMAL(10,2)",
        pa.decimal128(10, 2),
        [*map(Decimal, ("0.00", "1.50", "-2.50", "2.45", "99999999.99", "-0.01")), None],
    ),
    "big": (
        "DECIMAL(38,0)",
        pa.decimal128(38, 0),
        [*map(Decimal, ("0", "1", "-7", "9" * 38, "-" + "9" * 38)), None],
    ),
    "fine": (
        "DECIMAL(38,18)",
        pa.decimal128(38, 18),
        [*map(Decimal, ("0", "0.5", "-1.5", "9" * 20 + ".5", "0." + "0" * 17 + "1")), None],
    ),
    "str": (
        "STRING",
        pa.string(),
        [
            *("", " ", "abc", " 12 ", "12", "-5", "1.5", "é", "😀a", "ÀÉ ß", "a,b,,c", "Spark SQL"),
            *("o'Brien-x y_z", '{"a":1,"b":[1,2]}', "[1,2]", "2020-01-31", "2020-02-30", "%", "a"),
            *("2020-01-31 10:11:12.123", "http://u:p@h.com:80/p/x?q=1&r=a%20b#f", "true", "NaN"),
            *(_LONG, "1e3", "\t x\n", "aBC", "b", "YWJj", "61", None, "a=1,b=2"),
        ],
    ),
    "bin": ("BINARY", pa.binary(), [b"", b"abc", b"\xff\xfe\x00", "é".encode(), None]),
    "date": ("DATE", pa.date32(), [*map(dt.date.fromisoformat, _DAYS), None]),
    "ts": (
        "TIMESTAMP",
        pa.timestamp("us", "UTC"),
        [*(dt.datetime.fromisoformat(text).replace(tzinfo=_UTC) for text in _MOMENTS), None],
    ),
    "ntz": ("TIMESTAMP_NTZ", pa.timestamp("us"), [*map(dt.datetime.fromisoformat, _MOMENTS), None]),
    "span": (
        "INTERVAL DAY TO SECOND",
        pa.duration("us"),
        [dt.timedelta(0), dt.timedelta(days=-1, microseconds=5), dt.timedelta(days=400000), None],
    ),
    "ints": (
        "ARRAY<INT>",
        pa.list_(pa.int32()),
        [[], [1], [3, 1, None, 2], [2**31 - 1, 1], [None], None],
    ),
    "strs": (
        "ARRAY<STRING>",
        pa.list_(pa.string()),
        [[], ["a"], ["b", None, "", "a", "b"], ["é", "😀"], None],
    ),
    "reals": (
        "ARRAY<DOUBLE>",
        pa.list_(pa.float64()),
        [[], [0.0, -0.0], [float("nan"), 1.0, None, float("-inf")], None],
    ),
    "lists": (
        "ARRAY<ARRAY<INT>>",
        pa.list_(pa.list_(pa.int32())),
        [[], [[1, 2], None, []], [[None]], None],
    ),
    "map": (
        "MAP<STRING, INT>",
        pa.map_(pa.string(), pa.int32()),
        [[], [("a", 1), ("b", None)], [("", 0)], None],
    ),
    "row": (
        "STRUCT<a: INT, b: STRING>",
        pa.struct([("a", pa.int32()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, {"a": None, "b": None}, None],
    ),
}
ROWS = 48


def table() -> pa.Table:
    """Columns int_1, int_2 and so on, and `rid`, the number of a row."""
    columns: dict[str, pa.Array] = {"rid": pa.array(range(ROWS), pa.int32())}
    for name, (_, type_, values) in POOLS.items():
        size = len(values)
        one = [values[row % size] for row in range(ROWS)]
        other = [values[(row * 5 + row // size + 1) % size] for row in range(ROWS)]
        columns |= {f"{name}_1": pa.array(one, type_), f"{name}_2": pa.array(other, type_)}
    return pa.table(columns)
