"""Which format a file has, and what separates the fields of a CSV file."""

from __future__ import annotations

import os

from everview.errors import DataError

FORMATS = ("parquet", "csv", "json")
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


def format_of(path: str, format: str | None) -> str:
    if not os.path.exists(path):
        raise DataError(f"there is no file {path}")
    if os.path.isdir(path):
        raise DataError(f"{path} is a directory; load the files in it, such as {path}/*.parquet")
    if not os.path.isfile(path):
        raise DataError(
            f"{path} is not a regular file, and a load reads a file twice; save it to a file, or "
            "pipe JSON lines into `everview put DB TABLE -`"
        )
    suffix = os.path.splitext(path.removesuffix(".gz"))[1].lower()
    name = format or SUFFIXES.get(suffix)
    if name not in FORMATS:
        raise DataError(
            f"{path}: format {name or suffix or 'without a suffix'} is not known; "
            f"give the format: {', '.join(FORMATS)}"
        )
    return name


def delimiter_of(path: str, delimiter: str | None) -> str:
    if delimiter is not None and (
        len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n'
    ):
        raise DataError(f"{path}: {delimiter!r} can't separate fields; give one ASCII character")
    return delimiter or ("\t" if path.lower().removesuffix(".gz").endswith(".tsv") else ",")
