"""How a program watches the maintainer at work."""

from __future__ import annotations

from dataclasses import dataclass

from everview.progress import Progress


@dataclass(frozen=True)
class Epoch:
    """An epoch that was just committed.

    `rows` are the view rows it wrote; `lag` is how many seconds old its oldest change was when
    readers could first see it. `group` are the views that have come to this epoch.
    """

    number: int
    changes: int
    rows: int
    seconds: float
    lag: float
    group: str = "main"

    @property
    def rate(self) -> float:
        """Changes per second."""
        return self.changes / self.seconds if self.seconds else 0.0


class Watcher:
    """The maintainer calls a method at each step, in its own thread; override what you need."""

    def waiting(self, holder: str) -> None:
        """Another process maintains this database; called repeatedly until it has ended."""

    def goes_on(self) -> bool:
        """Whether to run another epoch if there are changes; called before each epoch."""
        return True

    def recovering(self, reason: str) -> None:
        """All views are loaded again, since the machine crashed before their state was on disk."""

    def loading(self, view: str, number: int, of: int) -> None:
        """The load of a view begins; it is number `number` of `of` new views."""

    def progress(self, progress: Progress) -> None:
        """How far the load of large views is; called now and then."""

    def awaits_loads(self) -> bool:
        """Whether to go on until large views are loaded; else a later run goes on with them."""
        return True

    def loaded(self, view: str, seconds: float) -> None:
        """The load of a view has ended; readers see its rows."""

    def committed(self, epoch: Epoch) -> None:
        """An epoch is committed; readers see it."""

    def stopped(self, view: str, reason: str) -> None:
        """A view failed and is stopped; its rows stay as they were."""

    def kept(self, view: str, reason: str) -> None:
        """A new definition of a view failed; the view continues with the old one."""
