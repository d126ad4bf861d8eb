"""Convert rows to pandas and Polars frames, without loss.

In pandas, an integer or BOOLEAN column with NULLs gets a nullable type, since a float would lose
digits. DECIMAL and DATE become Python objects, and times have microseconds. Polars is not installed
with Everview.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from everview.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """The rows as a pandas frame. Raises `DataError` if pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        raise _not_installed("pandas") from None
    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    columns = [
        column.to_pandas(types_mapper=nullable.get if column.null_count else None)
        for column in table.columns
    ]
    frame = pd.DataFrame(dict(enumerate(columns)), index=pd.RangeIndex(table.num_rows))
    frame.columns = pd.Index(table.column_names, dtype=object)
    return frame


def to_polars(table: pa.Table) -> pl.DataFrame:
    """The rows as a Polars frame. Raises `DataError` if Polars is not installed, or two columns
    have one name."""
    from everview.results.result import check_names

    try:
        import polars as pl
    except ImportError:
        raise _not_installed("polars") from None
    check_names(table.column_names)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _not_installed(package: str) -> DataError:
    return DataError(
        f"{package} is not installed; pip install {package}, or take the rows with to_arrow()"
    )
