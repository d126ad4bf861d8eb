"""Records of who follows the changes of views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from everview.catalog.records import Document


@dataclass(frozen=True)
class Follower:
    """How far someone has read the changes of a view, and until when that counts: a time in seconds
    since 1970, or None for ever."""

    epoch: int
    until: float | None = None


@dataclass(frozen=True)
class Followers:
    """Who follows the changes of a view, by name. The view's log has all changes after the epoch
    `since`."""

    since: int
    by_name: Mapping[str, Follower]

    def read_by(self, name: str, follower: Follower) -> Followers:
        """The same when a follower has read so far; the log may be trimmed to the slowest."""
        return self._of({**self.by_name, name: follower})

    def without(self, *names: str) -> Followers | None:
        """The same without some; None if nobody is left."""
        left = {name: one for name, one in self.by_name.items() if name not in names}
        return self._of(left) if left else None

    def expired(self, now: float) -> list[str]:
        """The names of those whose time is over."""
        return [name for name, one in self.by_name.items() if one.until and one.until < now]

    def _of(self, by_name: Mapping[str, Follower]) -> Followers:
        slowest = min(follower.epoch for follower in by_name.values())
        return Followers(max(self.since, slowest), by_name)

    def to_document(self) -> Document:
        followers = {name: [one.epoch, one.until] for name, one in self.by_name.items()}
        return {"since": self.since, "followers": followers}

    @classmethod
    def from_document(cls, document: Document) -> Self:
        followers = {name: Follower(*one) for name, one in document["followers"].items()}
        return cls(document["since"], followers)
