"""Everview: SQL views over key-value tables, always current."""

from everview.database import Database, open
from everview.errors import EverviewError
from everview.result import Result
from everview.schema import Column, TableSchema
from everview.stores.base import Observer, Snapshot, Write
from everview.table import Table

__version__ = "0.1.0"

__all__ = [
    "Column",
    "Database",
    "EverviewError",
    "Observer",
    "Result",
    "Snapshot",
    "Table",
    "TableSchema",
    "Write",
    "open",
]
