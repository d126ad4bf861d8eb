"""What the maintainer tells while it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """An epoch that was just committed.

    `rows` are the view rows it wrote; `lag` is how many seconds old its oldest change was when
    readers could first see it.
    """

    number: int
    changes: int
    rows: int
    seconds: float
    lag: float

    @property
    def rate(self) -> float:
        """Changes per second."""
        return self.changes / self.seconds if self.seconds else 0.0


class Watcher:
    """Is told of each step, in the maintainer's thread; override what you need."""

    def waiting(self, holder: str) -> None:
        """Another process maintains this database; called again and again until it is done."""

    def goes_on(self) -> bool:
        """Whether to run another epoch if there are changes; asked before each."""
        return True

    def recovering(self, reason: str) -> None:
        """All views are made anew, since the machine went down before their state was synced."""

    def loading(self, view: str, number: int, of: int) -> None:
        """The first rows of a view are being computed; it is the number-th of `of` new views."""

    def loaded(self, view: str, seconds: float) -> None:
        """A view has its first rows."""

    def committed(self, epoch: Epoch) -> None:
        """An epoch is visible to readers."""

    def stopped(self, view: str, reason: str) -> None:
        """A view failed, and stays as it was."""

    def kept(self, view: str, reason: str) -> None:
        """A new definition of a view failed, and the view goes on as it was."""
