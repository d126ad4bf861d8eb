"""The 22 TPC-H queries with the standard's validation parameters, one file each.

They are Spark SQL that DuckDB reads as well. Every column has a name.
"""

from __future__ import annotations

from importlib.resources import files

QUERIES = {
    f"q{number}": (files(__name__) / f"q{number:02}.sql").read_text(encoding="utf-8")
    for number in range(1, 23)
}
