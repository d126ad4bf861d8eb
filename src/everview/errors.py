"""Every error that Everview raises on purpose, in one tree, with its code.

    EverviewError               EV000
    ├── DatabaseError           EV100
    │   ├── NotADatabase        EV101
    │   ├── ReadOnly            EV102
    │   ├── FormatMismatch      EV103
    │   ├── DatabaseClosed      EV104
    │   ├── Damaged             EV105
    │   ├── Superseded          EV106
    │   └── PinExpired          EV107
    ├── CatalogError            EV200
    │   ├── TableNotFound       EV201
    │   ├── TableExists         EV202
    │   ├── InvalidSchema       EV203
    │   ├── ViewNotFound        EV204
    │   ├── InUse               EV205
    │   ├── NotLoaded           EV206
    │   └── Conflict            EV207
    ├── DataError               EV300
    │   ├── WrongType           EV301
    │   ├── UnknownColumn       EV302
    │   ├── NullNotAllowed      EV303
    │   ├── WrongKey            EV304
    │   ├── Outdated            EV305
    │   └── InvalidHistory      EV306
    ├── WriteError              EV400
    │   ├── WriteRejected       EV401
    │   ├── ObserverFailed      EV402
    │   ├── PartialWrite        EV403
    │   ├── StoreFull           EV404
    │   └── AppendOnly          EV405
    ├── LogError                EV500
    │   ├── LogTrimmed          EV501
    │   └── UnknownConsumer     EV502
    ├── SqlError                EV600
    │   ├── InvalidSql          EV601
    │   ├── UnsupportedSql      EV602
    │   ├── EngineUnavailable   EV603
    │   ├── Overflow            EV604
    │   ├── TooManyRows         EV605
    │   └── OutOfReach          EV606
    ├── EngineFailed            EV700
    │   └── OutOfMemory         EV701
    └── LoadEnded               EV800

A message says what happened, where, and what to do about it. A code never changes its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(name: str, names: Iterable[str]) -> str:
    """Suggest the known name that is most like `name`, in any case; '' if none is like it."""
    by_lower = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), by_lower, 1)
    return f"did you mean {by_lower[close[0]]}? " if close else ""


class EverviewError(Exception):
    """The base class of all errors that Everview raises on purpose."""

    code = "EV000"


class DatabaseError(EverviewError):
    """The database as a whole can't be used."""

    code = "EV100"


class NotADatabase(DatabaseError):
    """The path holds no Everview database."""

    code = "EV101"


class ReadOnly(DatabaseError):
    """The program writes through a handle that it opened with `readonly=True`."""

    code = "EV102"


class FormatMismatch(DatabaseError):
    """Another version of Everview wrote these files, in another format."""

    code = "EV103"


class DatabaseClosed(DatabaseError):
    """The handle was closed, or the directory was deleted, moved or replaced."""

    code = "EV104"


class Damaged(DatabaseError):
    """Stored bytes fail their checksum, or contradict each other."""

    code = "EV105"


class Superseded(DatabaseError):
    """Another maintainer took over. The store refused what this one wanted to write."""

    code = "EV106"


class PinExpired(DatabaseError):
    """The pin was open for longer than its limit, so it ended."""

    code = "EV107"


class CatalogError(EverviewError):
    """A table or view is missing, its name is taken, or its definition is invalid."""

    code = "EV200"


class TableNotFound(CatalogError):
    """There is no table of that name, or it was dropped."""

    code = "EV201"


class TableExists(CatalogError):
    """A table or view of that name exists already."""

    code = "EV202"


class InvalidSchema(CatalogError):
    """The definition of a table is invalid."""

    code = "EV203"


class ViewNotFound(CatalogError):
    """There is no view of that name, or it was dropped."""

    code = "EV204"


class InUse(CatalogError):
    """A view reads this table or view, so it can't be dropped or replaced now."""

    code = "EV205"


class NotLoaded(CatalogError):
    """The view has no rows to read, because it is not loaded."""

    code = "EV206"


class Conflict(CatalogError):
    """A record changed since it was read."""

    code = "EV207"


class DataError(EverviewError):
    """Rows or keys don't fit the table. Nothing was written."""

    code = "EV300"


class WrongType(DataError):
    """A column can't hold the value."""

    code = "EV301"


class UnknownColumn(DataError):
    """The table has no such column."""

    code = "EV302"


class NullNotAllowed(DataError):
    """A key column or a NOT NULL column has no value."""

    code = "EV303"


class WrongKey(DataError):
    """The key has the wrong number of columns, or belongs to another row."""

    code = "EV304"


class Outdated(DataError):
    """The table changed its columns after these rows were made for it."""

    code = "EV305"


class InvalidHistory(DataError):
    """The checker can't use the recorded history."""

    code = "EV306"


class WriteError(EverviewError):
    """A valid write failed as a whole or in part."""

    code = "EV400"


class WriteRejected(WriteError):
    """An observer refused the write. Nothing was written."""

    code = "EV401"


class ObserverFailed(WriteError):
    """An observer failed after the commit. The write stands."""

    code = "EV402"


class PartialWrite(WriteError):
    """A device failed in the middle of a write over several regions.

    `applied` maps each region that was written to the last sequence written there. These regions
    keep the write. Every other region is as it was before.
    """

    code = "EV403"

    def __init__(self, message: str, applied: dict[int, int]) -> None:
        super().__init__(message)
        self.applied = applied


class StoreFull(WriteError):
    """The disk or the memory map is full. Where nothing fitted, nothing changed."""

    code = "EV404"


class AppendOnly(WriteError):
    """The write would change or delete a row of an append-only table. Nothing was written."""

    code = "EV405"


class LogError(EverviewError):
    """The change log can't answer the request."""

    code = "EV500"


class LogTrimmed(LogError):
    """The log no longer has the requested changes."""

    code = "EV501"


class UnknownConsumer(LogError):
    """No consumer of that name is registered for the table."""

    code = "EV502"


class SqlError(EverviewError):
    """A statement can't run."""

    code = "EV600"


class InvalidSql(SqlError):
    """The statement has a syntax error, or names something that doesn't exist."""

    code = "EV601"


class UnsupportedSql(SqlError):
    """The statement is valid SQL, but Everview doesn't support it."""

    code = "EV602"


class EngineUnavailable(SqlError):
    """The engine that should run the statement doesn't start."""

    code = "EV603"


class Overflow(SqlError):
    """A result is too large for the type of its column."""

    code = "EV604"


class TooManyRows(SqlError):
    """A scalar subquery, or a join without an equality, has too many rows."""

    code = "EV605"


class OutOfReach(SqlError):
    """The SQL would reach a program, a file or something else outside its database."""

    code = "EV606"


class EngineFailed(EverviewError):
    """The engine failed in the middle of an epoch. The next run repeats the epoch."""

    code = "EV700"


class OutOfMemory(EngineFailed):
    """The engine has less memory than a job takes."""

    code = "EV701"


class LoadEnded(EverviewError):
    """A load was ended before it was done. The next run goes on with it, if it still has to."""

    code = "EV800"


# Failures that may pass by themselves: the disk has room again, or the engine works again.
PASSING = (StoreFull, EngineFailed)
SECONDS_BETWEEN_TRIES = 2.0


def reason_of(error: EverviewError) -> str:
    """Say in a word or two why a handle can't show its table or view."""
    if isinstance(error, DatabaseClosed):
        return "the database is closed"
    return "dropped" if isinstance(error, TableNotFound | ViewNotFound) else f"error {error.code}"
