"""Every error that Everview raises on purpose, in one tree.

    EverviewError
    ├── DatabaseError      NotADatabase · FormatMismatch · DatabaseClosed · ReadOnly · Damaged
    │                      PinExpired
    ├── CatalogError       TableNotFound · TableExists · InvalidSchema · ViewNotFound · InUse
    │                      NotLoaded
    ├── DataError          WrongType · UnknownColumn · NullNotAllowed · WrongKey · Outdated
    │                      InvalidHistory
    ├── WriteError         WriteRejected · ObserverFailed · PartialWrite · StoreFull
    │                      AppendOnly
    ├── LogError           LogTrimmed · UnknownConsumer
    └── SqlError           InvalidSql · UnsupportedSql · EngineUnavailable · Overflow
                           TooManyRows · OutOfReach

A message says what happened, where, and what to do about it. `code` is stable across releases.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def meant(name: str, known: Iterable[str]) -> str:
    """A hint at the known name that is nearest, in whatever case; '' if none is near."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, 1)
    return f"did you mean {by_lower[close[0]]}? " if close else ""


class EverviewError(Exception):
    """Base of all errors raised by Everview."""

    code = "EV000"


class DatabaseError(EverviewError):
    """The database as a whole can't be used."""

    code = "EV100"


class NotADatabase(DatabaseError):
    """The path holds no Everview database."""

    code = "EV101"


class ReadOnly(DatabaseError):
    """A write through a handle that was opened to read."""

    code = "EV102"


class FormatMismatch(DatabaseError):
    """The files were written by another version of the format."""

    code = "EV103"


class DatabaseClosed(DatabaseError):
    """The database handle was closed."""

    code = "EV104"


class Damaged(DatabaseError):
    """Stored bytes fail their checksum or can't be what was written."""

    code = "EV105"


class Superseded(DatabaseError):
    """Another maintainer took over; what this one would have written was refused."""

    code = "EV106"


class PinExpired(DatabaseError):
    """A pin that was open for longer than it may be."""

    code = "EV107"


class CatalogError(EverviewError):
    """A definition is missing, taken or invalid."""

    code = "EV200"


class TableNotFound(CatalogError):
    """No table of that name, or it was dropped."""

    code = "EV201"


class TableExists(CatalogError):
    """The name is taken."""

    code = "EV202"


class InvalidSchema(CatalogError):
    """A table definition that can't be stored."""

    code = "EV203"


class ViewNotFound(CatalogError):
    """No view of that name, or it was dropped."""

    code = "EV204"


class InUse(CatalogError):
    """A table that a view reads can't be dropped."""

    code = "EV205"


class NotLoaded(CatalogError):
    """A view that has no rows yet to look at."""

    code = "EV206"


class Conflict(CatalogError):
    """A record changed since it was read."""

    code = "EV207"


class DataError(EverviewError):
    """Rows or keys that don't fit the table; nothing was written."""

    code = "EV300"


class WrongType(DataError):
    """A value that its column can't hold."""

    code = "EV301"


class UnknownColumn(DataError):
    """A column the table doesn't have."""

    code = "EV302"


class NullNotAllowed(DataError):
    """NULL or nothing where a key or NOT NULL column needs a value."""

    code = "EV303"


class WrongKey(DataError):
    """A key of the wrong shape."""

    code = "EV304"


class Outdated(DataError):
    """Rows made for columns that the table no longer has."""

    code = "EV305"


class InvalidHistory(DataError):
    """A recorded history that can't be checked."""

    code = "EV306"


class WriteError(EverviewError):
    """A valid write that did not happen, or not wholly."""

    code = "EV400"


class WriteRejected(WriteError):
    """An observer refused the write; nothing was written."""

    code = "EV401"


class ObserverFailed(WriteError):
    """An observer failed after the write was committed; the write stands."""

    code = "EV402"


class PartialWrite(WriteError):
    """Some regions were written before one failed, and stay so; `applied` says which.

    `applied` maps region -> last sequence written there. Every other region is as it was before.
    """

    code = "EV403"

    def __init__(self, message: str, applied: dict[int, int]) -> None:
        super().__init__(message)
        self.applied = applied


class StoreFull(WriteError):
    """No room on disk or in the memory map; where there was none, all is as it was before."""

    code = "EV404"


class AppendOnly(WriteError):
    """A change or a deletion of a row of an append-only table; nothing was written."""

    code = "EV405"


class LogError(EverviewError):
    """A change log can't serve the request."""

    code = "EV500"


class LogTrimmed(LogError):
    """The changes asked for were trimmed."""

    code = "EV501"


class UnknownConsumer(LogError):
    """The consumer is not registered for the table."""

    code = "EV502"


class EngineFailed(EverviewError):
    """The engine failed in the middle of an epoch, which will be run again."""

    code = "EV700"


class SqlError(EverviewError):
    """A statement that can't be run."""

    code = "EV600"


class InvalidSql(SqlError):
    """The statement doesn't parse or doesn't resolve."""

    code = "EV601"


class UnsupportedSql(SqlError):
    """A valid statement that Everview doesn't support."""

    code = "EV602"


class EngineUnavailable(SqlError):
    """The engine that should run the statement can't be started."""

    code = "EV603"


class Overflow(SqlError):
    """A result that its column's type can't hold."""

    code = "EV604"


class TooManyRows(SqlError):
    """More rows than there may be: of a scalar subquery, or pairs of a join without an equality."""

    code = "EV605"


class OutOfReach(SqlError):
    """SQL that would reach a program, a file or anything else outside its database."""

    code = "EV606"


# what may be over when it is tried again: there is room, or the engine works
PASSING = (StoreFull, EngineFailed)
SECONDS_BETWEEN_TRIES = 2.0


def reason_of(error: EverviewError) -> str:
    """In a word or two, why a handle of a table or view shows nothing else of it."""
    if isinstance(error, DatabaseClosed):
        return "the database is closed"
    return "dropped" if isinstance(error, TableNotFound | ViewNotFound) else f"error {error.code}"
