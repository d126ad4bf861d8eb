"""The gate of an environment: it knows who of this process uses it, and when it may change.

Transactions enter and leave. An environment that nobody uses may sleep, without open files. It is
changed, or closed because its files are gone, when no transaction runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everview.errors import StoreFull

PATIENCE = 10.0


class Gate:
    """Counts the transactions on an environment, and those who only keep it awake.

    Threads share it. While it calls `close` or `open_again`, it lets nobody in.
    """

    def __init__(self) -> None:
        self.last_used = time.monotonic()
        self.is_asleep = False
        self.is_retired = False
        self._condition = threading.Condition()
        self._transactions = 0
        self._watches = 0
        self._is_changing = False

    @property
    def is_in_use(self) -> bool:
        """Whether a transaction runs."""
        return self._transactions > 0

    def enter(self) -> bool:
        """Count a transaction that begins; False if the environment sleeps."""
        with self._condition:
            self._wait_for_end_of_change()
            if self.is_asleep:
                return False
            self._transactions += 1
            self.last_used = time.monotonic()
            return True

    def leave(self, close: Callable[[], None]) -> None:
        """A transaction has ended; closes the environment if it was the last of a retired one."""
        with self._condition:
            self._transactions -= 1
            self._condition.notify_all()
            if self.is_retired and not self._transactions:
                close()

    @contextmanager
    def watch(self) -> Iterator[bool]:
        """Whether the environment is awake; if so, it does not fall asleep inside the block."""
        with self._condition:
            is_awake = not self.is_asleep
            self._watches += is_awake
        try:
            yield is_awake
        finally:
            with self._condition:
                self._watches -= is_awake

    def sleep(self, close: Callable[[], None]) -> None:
        """Close the environment until it wakes; does nothing if it is in use."""
        if self._condition.acquire(blocking=False):
            try:
                is_in_use = self._transactions or self._watches
                if not (is_in_use or self.is_retired or self.is_asleep):
                    close()
                    self.is_asleep = True
            finally:
                self._condition.release()

    def wake(self, open_again: Callable[[], None]) -> None:
        """Open the environment if it sleeps."""
        with self._condition:
            self._wait_for_end_of_change()
            if self.is_asleep:
                open_again()

    def retire(self, close: Callable[[], None]) -> None:
        """Close the environment when its transactions have ended."""
        with self._condition:
            self.is_retired = True
            if not self._transactions:
                close()

    @contextmanager
    def without_transactions(self, path: str, purpose: str) -> Iterator[None]:
        """No transaction of this process runs on the environment inside the block."""
        with self._condition:
            self._wait_for_end_of_change()
            self._is_changing = True
            try:
                if not self._condition.wait_for(lambda: self._transactions == 0, PATIENCE):
                    raise StoreFull(
                        f"{path} can't be {purpose} while this process reads it; finish "
                        "open scans, or open the database with a larger map_size"
                    )
                yield
            finally:
                self._is_changing = False
                self._condition.notify_all()

    def _wait_for_end_of_change(self) -> None:
        """Wait until nobody changes the environment."""
        self._condition.wait_for(lambda: not self._is_changing)
