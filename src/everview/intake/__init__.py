"""The way in: rows and keys, however users hold them, become Arrow of exactly the table's types.

Python values, Arrow, pandas, Polars and text all follow one rule: a value is taken if the column
can hold it without loss and without guessing, and refused with its place and a remedy if not.
Nothing is written when one value is refused.
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
