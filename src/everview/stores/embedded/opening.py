"""Opening LMDB in a directory: the files it needs there, and its named databases."""

from __future__ import annotations

import os
from contextlib import suppress

import lmdb

from everview.stores.embedded import process_locks
from everview.stores.embedded.datafile import DataFile

MAX_READERS = 1024
BAGS = "bags"  # a database of this name keeps any number of values under a key, in order


def open_lmdb(
    path: str,
    file: DataFile,
    max_dbs: int,
    map_size: int,
    sync: bool,
    readonly: bool,
    create: bool,
) -> lmdb.Environment:
    """LMDB's environment in a directory, whose data file is checked first."""
    with process_locks.open_lock:
        prepare_files(path, file, create)
        return lmdb.open(
            path,
            map_size=map_size,
            max_dbs=max_dbs,
            max_readers=MAX_READERS,
            sync=sync,
            readahead=False,
            readonly=readonly,
            create=create,
        )


def prepare_files(path: str, file: DataFile, create: bool) -> None:
    if not create or file.has_content:
        file.check()
    if not create:
        return
    os.makedirs(path, exist_ok=True)
    # LMDB maps a sparse lock file; on a full disk, touching it would be a SIGBUS.
    lock = os.path.join(path, "lock.mdb")
    with suppress(FileExistsError):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, 64 * MAX_READERS + 128)
        except OSError:
            os.unlink(lock)
            raise
        finally:
            os.close(descriptor)


def open_databases(
    environment: lmdb.Environment, names: tuple[str, ...], readonly: bool, create: bool
) -> list[lmdb._Database]:
    """The named databases of an environment."""

    def open_all(txn: lmdb.Transaction | None, create: bool) -> list[lmdb._Database]:
        return [
            environment.open_db(name.encode(), txn, create=create, dupsort=name == BAGS)
            for name in names
        ]

    while True:
        try:
            if readonly:
                return open_all(None, create=False)
            with environment.begin(write=True) as txn:
                return open_all(txn, create=create)
        except lmdb.MapResizedError:  # another process made it grow since it was opened
            environment.set_mapsize(0)
