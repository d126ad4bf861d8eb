"""An environment's data file: whether it is still the one that was opened, and whole.

LMDB does not see that its file was cut: a process that touches the missing part is killed. Nor does
it see that the file was deleted: it goes on with a file that nobody else will find.
"""

from __future__ import annotations

import os

from everview.errors import Damaged, DatabaseClosed, DatabaseError
from everview.stores.embedded.files import Home, identity_of
from everview.stores.embedded.pages import pages_of


class DataFile:
    """The file of the environment in a directory of a database.

    What is wrong with it is `Damaged`, with what to do; or `DatabaseClosed` if the whole database
    was deleted, moved or replaced.
    """

    def __init__(self, home: Home, directory: str) -> None:
        self.path = os.path.join(directory, "data.mdb")
        self._home = home
        self._directory = directory
        self._identity: tuple[int, int] | None = None
        self._size = 0

    def remember(self) -> None:
        """Remember the file that was opened, and its size; from now on it may only grow."""
        self._identity, self._size = identity_of(self.path), os.path.getsize(self.path)
        if self._home.is_lost:
            raise self.replaced_error()

    def look(self) -> None:
        """Raises if the file was deleted, replaced or cut since it was opened."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise self.replaced_error() from error
        if (status.st_dev, status.st_ino) != self._identity:
            raise self.replaced_error()
        if status.st_size < self._size:
            self.check()
        self._size = status.st_size

    def check(self) -> None:
        """Raises if a page that is in use is not there."""
        try:
            with pages_of(self.path) as pages:
                pages.check()
        except Damaged as error:
            raise self.unusable_error(error) from error

    @property
    def has_content(self) -> bool:
        return os.path.exists(self.path) and os.path.getsize(self.path) > 0

    @property
    def is_gone(self) -> bool:
        """Whether it was removed, and perhaps another is in its place."""
        try:
            return identity_of(self.path) != self._identity
        except OSError:
            return True

    @property
    def is_homeless(self) -> bool:
        """Whether the database was deleted, moved or replaced."""
        return self._home.is_lost

    @property
    def size_on_disk(self) -> int:
        try:
            return os.stat(self.path).st_blocks * 512
        except FileNotFoundError as error:
            raise self.unusable_error(error) from error

    def replaced_error(self) -> DatabaseError:
        reason = "it was dropped, deleted or replaced since this process opened it"
        return self.unusable_error(reason)

    def unusable_error(self, reason: Exception | str) -> DatabaseError:
        """The error that says why the file can't be used."""
        home = self._home.path
        if self._home.is_lost:
            return DatabaseClosed(
                f"{home} was deleted, moved or replaced since this process opened it; this handle "
                "reads and writes nothing more. Open the database again, at its new path if it "
                "moved"
            )
        is_state = self._directory.startswith(os.path.join(home, "state", ""))
        remedy = (
            f"load its view again, with `everview verify {home} --repair`"
            if is_state
            else "restore it from a copy"
        )
        return Damaged(f"{self._directory} is damaged or gone: {reason}; {remedy}")
