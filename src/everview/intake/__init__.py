"""Converts the rows and keys of users to Arrow of exactly the table's types.

Python values, Arrow, pandas, Polars, Spark frames and text follow one rule: a value is accepted if
the column can hold it without loss and without guessing. Else it is refused, with its place and a
remedy, and nothing is written.
"""

from everview.intake.keys import Keys, bound_to_key, keys_to_arrow
from everview.intake.rows import Rows, Where, documents_to_arrow, rows_to_arrow, text_to_arrow

__all__ = [
    "Keys",
    "Rows",
    "Where",
    "bound_to_key",
    "documents_to_arrow",
    "keys_to_arrow",
    "rows_to_arrow",
    "text_to_arrow",
]
