"""Arrow types as types of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import types

from everview.schema import Column

_SPARK: dict[pa.DataType, types.DataType] = {
    pa.bool_(): types.BooleanType(),
    pa.int8(): types.ByteType(),
    pa.int16(): types.ShortType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.float32(): types.FloatType(),
    pa.float64(): types.DoubleType(),
    pa.string(): types.StringType(),
    pa.binary(): types.BinaryType(),
    pa.date32(): types.DateType(),
    pa.timestamp("us", tz="UTC"): types.TimestampType(),
    pa.timestamp("us"): types.TimestampNTZType(),
    pa.duration("us"): types.DayTimeIntervalType(),
}


def struct(columns: Sequence[Column]) -> types.StructType:
    """The schema of a frame with these columns, any of which may be NULL."""
    return _struct(tuple((column.name, column.type) for column in columns))


@lru_cache(4096)
def _struct(columns: tuple[tuple[str, pa.DataType], ...]) -> types.StructType:
    fields = [types.StructField(name, spark_type(arrow), True) for name, arrow in columns]
    return types.StructType(fields)


def spark_type(arrow: pa.DataType) -> types.DataType:
    """The type of a column of a frame."""
    if pa.types.is_decimal(arrow):
        return types.DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_list(arrow):
        return types.ArrayType(spark_type(arrow.value_type))
    if pa.types.is_map(arrow):
        return types.MapType(spark_type(arrow.key_type), spark_type(arrow.item_type))
    if pa.types.is_struct(arrow):
        return _struct(tuple((field.name, field.type) for field in arrow))
    return _SPARK[arrow]
