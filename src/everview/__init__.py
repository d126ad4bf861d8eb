"""Everview: SQL views over key-value tables, always current."""

from everview.database import Database, open
from everview.errors import EverviewError
from everview.following import Feed
from everview.maintain.report import Report
from everview.maintain.watching import Epoch, Watcher
from everview.pin import Pin
from everview.progress import Progress
from everview.results.result import Result
from everview.schema import Column, TableSchema
from everview.stores.base import (
    BATCH_ROWS,
    LEASE_SECONDS,
    Compaction,
    Observer,
    PinNote,
    Snapshot,
    Space,
    Write,
)
from everview.table import Table
from everview.view import View

__version__ = "0.1.0"

__all__ = [
    "BATCH_ROWS",
    "LEASE_SECONDS",
    "Column",
    "Compaction",
    "Database",
    "Epoch",
    "EverviewError",
    "Feed",
    "Observer",
    "Pin",
    "PinNote",
    "Progress",
    "Report",
    "Result",
    "Snapshot",
    "Space",
    "Table",
    "TableSchema",
    "View",
    "Watcher",
    "Write",
    "open",
]
