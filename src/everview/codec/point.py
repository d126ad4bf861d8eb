"""One key or row at a time, for point reads: what the column-wise codecs do, without Arrow except
for arrays, structs and maps.

Tests hold it against them for every type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from everview.codec.buffers import fold_one, storage_dtype, word_sum
from everview.codec.rows import HEADER, ROW_FORMAT, codec_of
from everview.errors import Damaged, DataError
from everview.schema import Column, is_nested, is_variable

_EXACT = Context(prec=38)
_DAY_ZERO = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_UTC = ZoneInfo("UTC")
_CODES = {"u1": "B", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "f4": "f", "f8": "d", "u4": "I"}
_WIDTHS = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}


def encode_key(columns: Sequence[Column], key: Sequence[Any]) -> bytes | None:
    """The key's bytes; None where it isn't plainly of the columns' types."""
    if len(key) != len(columns):
        return None
    parts = []
    for column, value in zip(columns, key, strict=True):
        if column.type == pa.string() and type(value) is str:
            try:
                text = value.encode()
            except UnicodeEncodeError:
                return None
            parts.append(text.replace(b"\0", b"\0\xff") + b"\0\0")
        elif (width := _WIDTHS.get(column.type)) and type(value) is int:
            half = 1 << (8 * width - 1)
            if not -half <= value < half:
                return None
            parts.append((value + half).to_bytes(width, "big"))
        else:
            return None
    return b"".join(parts)


class PointDecoder:
    """Decodes single rows of one schema version to Python values; without a version, rows of
    state, which have no header."""

    def __init__(self, columns: Sequence[Column], version: int | None = None) -> None:
        self._names = [column.name for column in columns]
        self._kind = b""
        if version is not None:
            self._kind = (ROW_FORMAT | version << 16).to_bytes(4, "little")
        variable = [i for i, column in enumerate(columns) if is_variable(column.type)]
        self._ends = {column: place for place, column in enumerate(variable)}
        plain = [i for i in range(len(columns)) if i not in self._ends]
        self._values = {column: place for place, column in enumerate(plain)}
        codes = (_CODES.get(storage_dtype(columns[i].type).str[1:], "16s") for i in plain)
        begin = HEADER if self._kind else 0
        self._bitmap = slice(begin, begin + (len(columns) + 7) // 8)
        self._fixed_part = struct.Struct(f"<{''.join(codes)}{'I' * len(variable)}")
        self._strings = self._bitmap.stop + self._fixed_part.size
        self._to_python = [_converter(column.type) for column in columns]

    def decode(self, row: bytes, positions: Sequence[int]) -> dict[str, Any]:
        """The chosen columns by name; raises `Damaged` if the row fails its checksum."""
        if self._kind:
            if row[:4] != self._kind:
                raise Damaged(f"a row has an unknown header {row[:4].hex()}")
            check_row(row)
        nulls = int.from_bytes(row[self._bitmap], "little")
        fixed_values = self._fixed_part.unpack_from(row, self._bitmap.stop)
        ends = (0, *fixed_values[len(self._values) :])
        values: dict[str, Any] = {}
        for i in positions:
            value: Any = None
            if not nulls >> i & 1:
                place = self._ends.get(i)
                if place is None:
                    value = fixed_values[self._values[i]]
                else:
                    value = row[self._strings + ends[place] : self._strings + ends[place + 1]]
                try:
                    value = self._to_python[i](value)
                except UnicodeDecodeError:
                    raise
                except (OverflowError, ValueError) as error:
                    raise _no_value(self._names[i]) from error
            values[self._names[i]] = value
        return values


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as dicts; raises `DataError` if Python has no value for one of their cells."""
    try:
        documents: list[dict[str, Any]] = rows.to_pylist()
    except UnicodeDecodeError:
        raise
    except (OverflowError, ValueError) as error:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError):
                raise _no_value(name) from error
        raise
    return documents


def _no_value(name: str) -> DataError:
    return DataError(
        f"column {name} has a date or a time outside the years 1 to 9999, for which Python has no "
        "value; read it as Arrow, with to_arrow(), or as text, with SELECT CAST(... AS STRING)"
    )


def check_row(row: bytes) -> None:
    """Raises `Damaged` if a row, of whatever version, fails its checksum."""
    head = int.from_bytes(row[:8], "little")
    if fold_one(word_sum(row) - head + (head & 0xFFFF_FFFF)) != head >> 32:
        raise Damaged("a row fails its checksum")


def _converter(arrow: pa.DataType) -> Callable[[Any], Any]:
    if is_nested(arrow):
        return _nested(arrow)
    if pa.types.is_decimal(arrow):
        return _decimal(arrow.scale)
    if pa.types.is_timestamp(arrow):
        return _timestamp_utc if arrow.tz else _timestamp
    if pa.types.is_boolean(arrow):
        return bool
    if pa.types.is_date32(arrow):
        return _date
    if pa.types.is_duration(arrow):
        return _interval
    return _text if arrow == pa.string() else _same


def _decimal(scale: int) -> Callable[[Any], Decimal]:
    def convert(value: int | bytes) -> Decimal:
        if isinstance(value, bytes):
            value = int.from_bytes(value, "little", signed=True)
        return Decimal(value).scaleb(-scale, _EXACT)

    return convert


def _nested(arrow: pa.DataType) -> Callable[[bytes], Any]:
    codec = codec_of(arrow)

    def convert(value: bytes) -> Any:
        return codec.decode(pa.array([value], pa.binary()), None)[0].as_py()

    return convert


def _timestamp(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _timestamp_utc(micros: int) -> datetime:
    return (_EPOCH_UTC + timedelta(microseconds=micros)).replace(tzinfo=_UTC)


def _interval(micros: int) -> timedelta:
    return timedelta(microseconds=micros)


def _date(days: int) -> date:
    return date.fromordinal(_DAY_ZERO + days)


def _text(value: bytes) -> str:
    return value.decode()


def _same(value: Any) -> Any:
    return value
