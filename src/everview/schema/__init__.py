"""What a table looks like: columns with Spark SQL types, a primary key, regions, observers.

In memory every type is an Arrow type; `sql_name` and `arrow_type` translate to and from Spark SQL.
Names keep the case they were written in and are found in any case, as in Spark.
"""

from everview.schema.names import (
    LONGEST_NAME,
    check_visible,
    quoted,
    unquoted,
)
from everview.schema.table import (
    DEFAULT_REGIONS,
    MAX_REGIONS,
    MAX_VERSIONS,
    Column,
    TableSchema,
    ViewKey,
    columns_of,
)
from everview.schema.types import (
    array_type,
    arrow_type,
    has_floats,
    is_list,
    is_nested,
    is_variable,
    sql_name,
    stored_type,
)

__all__ = [
    "DEFAULT_REGIONS",
    "LONGEST_NAME",
    "MAX_REGIONS",
    "MAX_VERSIONS",
    "Column",
    "TableSchema",
    "ViewKey",
    "array_type",
    "arrow_type",
    "check_visible",
    "columns_of",
    "has_floats",
    "is_list",
    "is_nested",
    "is_variable",
    "quoted",
    "sql_name",
    "stored_type",
    "unquoted",
]
