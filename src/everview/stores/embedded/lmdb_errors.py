"""Errors of LMDB and of the system as errors of Everview, with what to do."""

from __future__ import annotations

import errno
import os
import resource
import shutil

import lmdb

from everview.errors import Damaged, DatabaseError, StoreFull, WriteError
from everview.stores.embedded.datafile import DataFile

FILES = 3  # that an environment has open
_NO_ROOM = ("No space left", "Input/output error", "File too large", "quota exceeded")
_UNREADABLE = (lmdb.InvalidError, lmdb.CorruptedError, lmdb.VersionMismatchError)
# what LMDB raises when it meets damage in a transaction
BROKEN = (*_UNREADABLE, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.CursorFullError)


def opening_error(
    error: Exception, path: str, file: DataFile, map_size: int
) -> DatabaseError | WriteError:
    """The error for an environment that can't be opened with a map of this size."""
    if isinstance(error, (*_UNREADABLE, lmdb.NotFoundError, FileNotFoundError)):
        return file.unusable_error(error)
    if os.strerror(errno.ENOENT) in str(error):  # it went while it was opened
        return file.unusable_error(error)
    if _has_no_room(error):
        return StoreFull(f"{path} can't be opened: {error}; make room")
    if any(os.strerror(code) in str(error) for code in (errno.EACCES, errno.EPERM)):
        return DatabaseError(
            f"{path} can't be opened: {error}; also a reader writes the lock files of "
            "a database: get the right to write there, or read a copy"
        )
    if os.strerror(errno.EROFS) in str(error):
        return DatabaseError(
            f"{path} can't be opened to write: {error}; open it with readonly=True"
        )
    if any(os.strerror(code) in str(error) for code in (errno.EMFILE, errno.ENFILE)):
        return too_many_files(path)
    if "already open" in str(error):
        return DatabaseError(
            f"{path} was being read or written when this process was forked, so it "
            "can't be used here; fork before, or start a fresh process"
        )
    return DatabaseError(
        f"{path} can't be opened: {error}. If address space is limited here, open "
        f"the database with a smaller map_size than {map_size:,} bytes."
    )


def damage_error(error: Exception, path: str) -> Damaged:
    return Damaged(f"{path} is damaged: {error}")


def write_error(error: lmdb.Error, path: str) -> WriteError:
    """The error for a write that failed as a whole."""
    if _has_no_room(error):
        free = shutil.disk_usage(os.path.dirname(path)).free
        return StoreFull(
            f"{path} could not be written and is as it was before: {error} "
            f"({free >> 20:,} MiB free there); make room and write again"
        )
    return WriteError(f"{path} could not be written and is as it was before: {error}")


def too_many_files(path: str) -> DatabaseError:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DatabaseError(
        f"{path} can't be opened: this process may have {soft:,} files open, and a region of a "
        f"table or a shard of a view takes {FILES}; allow it more, for example with ulimit -n"
    )


def _has_no_room(error: Exception) -> bool:
    return any(words in str(error) for words in _NO_ROOM)
