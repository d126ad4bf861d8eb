"""The directory of a database: what is in it, and which version of the format wrote it.

FORMAT              the text "everview 6"; every process that uses the database holds a shared lock
catalog/            definitions and other documents, an LMDB environment
tables/000001/0     region 0 of the first table, an LMDB environment; and so on
state/volume-views0/3  shard 3 of the states that lie in a volume, an LMDB environment; and so on
pins/4711.1a2b3c4d  a pin that process 4711 holds, JSON
MAINTAINER.1        the lease with token 1: the process that maintains views locks this file
RUNNER.1            the same for `everview run`, which holds it between epochs too
*.wanted            a process that waits for the lease locks this file
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from everview.errors import DatabaseError, FormatMismatch, NotADatabase

FORMAT = 6
# 5 has 64 slots and deals none out, and 4 has no volumes; all else in them is the same
_CONVERTED = (4, 5)
_NAME = "FORMAT"


def open_directory(
    path: str, create: bool, readonly: bool, make_catalog: Callable[[], None]
) -> int:
    """Check that `path` is a database in our format and lock it against a change of format.

    A database of a format before ours becomes one of ours when it is opened to write. Returns the
    locked file, which the caller closes. With `create`, makes a database in a new or
    empty directory: first its catalog, then FORMAT. Raises `NotADatabase`, `FormatMismatch`, and
    `DatabaseError` while another process changes the format.
    """
    if create:
        _create(path, make_catalog)
    if not os.path.isdir(path):
        if os.path.exists(path):
            raise NotADatabase(f"{path} is a file; a database is a directory: check the path")
        raise NotADatabase(
            f"{path} does not exist; create a database with `everview init {path}` "
            f"or everview.open({path!r}, create=True)"
        )
    try:
        lock = os.open(os.path.join(path, _NAME), os.O_RDONLY | os.O_CLOEXEC)
        if not os.path.isfile(os.path.join(path, _NAME)):
            os.close(lock)
            raise FileNotFoundError
    except OSError:
        raise NotADatabase(
            f"{path} is a directory but not a database (it has no readable file {_NAME}); check "
            "the path, or create a database in a new directory"
        ) from None
    try:
        _check_format(path, lock, readonly)
    except BaseException:
        os.close(lock)
        raise
    return lock


@dataclass(frozen=True)
class Home:
    """The directory of a database, as it was when the database was opened."""

    path: str
    identity: tuple[int, int] | None  # None while it is created

    @property
    def is_lost(self) -> bool:
        """Whether the directory was deleted, moved or replaced since."""
        return self.identity is not None and identity(self.path) != self.identity


def identity(path: str) -> tuple[int, int] | None:
    """Device and inode of FORMAT, which differ if another database takes the place of this one.

    None if there is no database.
    """
    try:
        return identity_of(os.path.join(path, _NAME))
    except OSError:
        return None


def identity_of(file: int | str) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_dev, status.st_ino


def _check_format(path: str, lock: int, readonly: bool) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DatabaseError(
            f"{path} is being converted to another format; try again when that is done"
        ) from None
    words = os.read(lock, 64).split()
    if len(words) != 2 or words[0] != b"everview" or not words[1].isdigit():
        raise NotADatabase(
            f"{path} is not a database: its file {_NAME} says {words!r}; check the path"
        )
    if int(words[1]) in _CONVERTED:
        if not readonly:
            _convert(path, lock, int(words[1]))
    elif int(words[1]) != FORMAT:
        newer = int(words[1]) > FORMAT
        remedy = "upgrade everview" if newer else "open it once with the everview that wrote it"
        raise FormatMismatch(
            f"{path} has format {int(words[1])}, this version of everview uses format {FORMAT}; "
            f"{remedy}"
        )


def _convert(path: str, lock: int, before: int) -> None:
    """Let a database of a format before ours be one of ours; nobody else may use it meanwhile."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)
        raise DatabaseError(
            f"{path} has format {before}, and other processes use it; end them, so that it can "
            f"be converted to format {FORMAT}, and open it again"
        ) from None
    try:
        _write_format(os.path.join(path, _NAME), "r+b")
    except OSError as error:
        raise DatabaseError(
            f"{path} can't be converted to format {FORMAT}: {error.strerror}; get the right to "
            "write there, or open it with readonly=True"
        ) from error
    fcntl.flock(lock, fcntl.LOCK_SH)


def _write_format(file_name: str, mode: Literal["wb", "r+b"]) -> None:
    with open(file_name, mode) as file:
        file.write(b"everview %d\n" % FORMAT)
        file.flush()
        os.fsync(file.fileno())


def _create(path: str, make_catalog: Callable[[], None]) -> None:
    try:
        os.makedirs(path, exist_ok=True)
        names = os.listdir(path)
    except OSError as error:
        raise NotADatabase(
            f"{path} can't be a database directory: {error.strerror}; choose another"
        ) from error
    if _NAME in names:
        return
    foreign = {name for name in names if not name.startswith(f".{_NAME}.")} - {"catalog", "tables"}
    if foreign:
        raise NotADatabase(
            f"{path} holds other files ({', '.join(sorted(foreign)[:3])}); "
            "create the database in a new or empty directory"
        )
    draft = os.path.join(path, f".{_NAME}.{os.getpid()}")
    try:
        os.makedirs(os.path.join(path, "tables"), exist_ok=True)
    except OSError as error:
        raise NotADatabase(
            f"nothing can be written in {path}: {error.strerror}; choose another directory"
        ) from error
    make_catalog()
    _write_format(draft, "wb")
    _put_in_place(draft, os.path.join(path, _NAME))


def _put_in_place(draft: str, file: str) -> None:
    """Rename the draft, unless another process was faster: its FORMAT may be open already."""
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
    except OSError:  # the file system has no links
        os.replace(draft, file)
        return
    os.unlink(draft)
