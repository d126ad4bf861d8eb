"""Load files into tables: Parquet, CSV with a header line, and JSON lines; the last two also .gz.

A file is read and put batch by batch, so memory is bounded by a batch. When a row doesn't fit, the
batches before it stay stored, and the error says how many rows they have. Loading the file again
replaces these rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from everview.errors import DataError, EverviewError
from everview.load.csv_files import read_csv
from everview.load.formats import delimiter_of, format_of
from everview.load.json_lines import read_json
from everview.load.parquet_files import read_parquet
from everview.load.pieces import fitting_batches
from everview.load.reading import Batches
from everview.load.reject import Rejects
from everview.table import Table

# Called after each batch with the rows stored so far and the part of the file read, 0 to 1, or
# None where its size is not known.
Progress = Callable[[int, float | None], None]

_READERS: dict[str, Callable[..., Batches]] = {
    "parquet": read_parquet,
    "csv": read_csv,
    "json": read_json,
}


def load(
    table: Table,
    path: str | os.PathLike[str],
    format: str | None = None,
    progress: Progress | None = None,
    delimiter: str | None = None,
    rejects: Rejects | None = None,
) -> int:
    """Put all rows of a file into a table; returns how many.

    A row replaces the row with the same key. `format` is parquet, csv or json (JSON lines); by
    default it follows from the suffix of the file. `delimiter` separates the fields of a CSV file;
    by default it is a comma, in a .tsv file a tab. Rows that don't fit go to `rejects`; without it,
    the first such row raises `DataError`.
    """
    path = os.fspath(path)
    format_name = format_of(path, format)
    options = {}
    if format_name == "csv":
        options["delimiter"] = delimiter_of(path, delimiter)
    elif delimiter is not None:
        raise DataError(f"{path} is not a CSV file, so it has no delimiter; leave it out")
    if rejects is None:
        batches = _READERS[format_name](table.schema, path, **options)
    else:
        batches = fitting_batches(table.schema, path, format_name, rejects, **options)
    return put_batches(table, batches, path, progress)


def put_batches(table: Table, batches: Batches, name: str, progress: Progress | None = None) -> int:
    """Put batch after batch; returns how many rows they had.

    An error says how many rows are stored, and calls the source `name`.
    """
    row_count = 0
    try:
        for batch, part in batches:
            table.put(batch)
            row_count += batch.num_rows
            if progress is not None:
                progress(row_count, part)
    except DataError as error:
        raise type(error)(f"{error}; {_outcome(row_count)}") from None
    except (EverviewError, KeyboardInterrupt) as error:
        error.add_note(f"{name}: {_outcome(row_count)}")
        raise
    return row_count


def _outcome(row_count: int) -> str:
    if not row_count:
        return "no rows were stored"
    return f"the {row_count:,} rows of earlier batches are stored; loading again replaces them"
