"""Everview: SQL views over key-value tables, always current."""

from everview.database import Database, open
from everview.errors import EverviewError
from everview.maintain.watching import Epoch, Watcher
from everview.pin import Pin
from everview.results.result import Result
from everview.schema import Column, TableSchema
from everview.stores.base import Observer, Snapshot, Write
from everview.table import Table
from everview.view import View

__version__ = "0.1.0"

__all__ = [
    "Column",
    "Database",
    "Epoch",
    "EverviewError",
    "Observer",
    "Pin",
    "Result",
    "Snapshot",
    "Table",
    "TableSchema",
    "View",
    "Watcher",
    "Write",
    "open",
]
