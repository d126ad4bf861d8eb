"""Leases: one maintainer of a database at a time.

A token counts the maintainers that took over. Everything that a maintainer writes it writes with
its token, and a store refuses an older token where it knows a newer one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

LEASE_SECONDS = 10.0  # without a sign of life of its holder, until another takes over
ASIDE_SECONDS = 0.1  # for which a holder steps aside, so that another gets the lease
# roles: to run epochs now, to do so all the time, and to load views beside epochs
WORK, RUN, LOADS = "MAINTAINER", "RUNNER", "LOADER"


class Leases(ABC):
    @property
    @abstractmethod
    def token(self) -> int:
        """The newest token."""

    @property
    @abstractmethod
    def is_fenced(self) -> bool:
        """Whether earlier maintainers are shut out of all state."""

    @abstractmethod
    def set_fenced(self, token: int) -> None:
        """Note that earlier maintainers are shut out."""

    @abstractmethod
    def hold(
        self, role: str, seconds: float, waiting: Callable[[str], None]
    ) -> AbstractContextManager[int]:
        """Hold the lease for a role inside the block, once it is free; gives its token.

        While another process holds it, `waiting` is called again and again with that holder. A
        holder that gives no sign of life for so many seconds loses it.
        """

    @abstractmethod
    def hold_if_free(self, role: str) -> AbstractContextManager[int | None]:
        """Hold the lease inside the block; gives its token, or None if another holds it."""

    @abstractmethod
    def is_wanted(self, role: str) -> bool:
        """Whether anyone waits for the lease."""
