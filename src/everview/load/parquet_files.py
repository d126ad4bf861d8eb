"""Parquet files as batches of rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as parquet

from everview.errors import DataError
from everview.intake import rows_to_arrow
from everview.load.reading import Batches, check_names
from everview.schema import TableSchema
from everview.stores.base import BATCH_ROWS


def read_parquet(schema: TableSchema, path: str) -> Batches:
    with open_parquet(path) as file, parquet_errors(path):
        check_names(schema, path, file.schema_arrow.names)
        total = max(1, file.metadata.num_rows)
        first = 0

        def where(row: int) -> str:
            return f"{path}, row {first + row:,}"

        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            yield rows_to_arrow(schema, batch, where), (first + batch.num_rows) / total
            first += batch.num_rows


def open_parquet(path: str) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from None


@contextmanager
def parquet_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).strip().replace("\n", " ")
        raise DataError(f"{path} is damaged: {reason}") from None
