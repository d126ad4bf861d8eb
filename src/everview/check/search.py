"""Searching the states of tables for those that reads showed.

Searches are exact: they find what there is or have looked at all states. One that would look at
more than its bound raises `Undecided`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from everview.check.history import Read
from everview.check.timeline import Cut, Timeline, below

_AHEAD = 63


class Undecided(Exception):
    """There are more states than the bound."""


@dataclass(frozen=True)
class Group:
    """Reads of one state; the cut, where an epoch's commit tells it."""

    reads: tuple[Read, ...]
    cut: Cut | None = None


Shows = Callable[[Cut, Sequence[Read]], bool]
Same = Callable[[Cut, Cut], bool]
Prepare = Callable[[list[Cut]], None]


class Search:
    """Searches of one timeline.

    `shows` tells whether reads are what a cut gives, `same` whether two cuts give the same;
    `prepare` is told which cuts are looked at next.
    """

    def __init__(
        self, timeline: Timeline, shows: Shows, same: Same, prepare: Prepare, bound: int
    ) -> None:
        self._timeline = timeline
        self._shows = shows
        self._same = same
        self._prepare = prepare
        self._bound = bound

    def first_out_of_order(self, groups: Sequence[Group]) -> int | None:
        """The first group that has no state at or after one of those before; None if all have.

        It is enough to go on from the lowest states of each group. Groups whose cut is known are
        taken to show it.
        """
        lowest = [self._timeline.start]
        for place, group in enumerate(groups):
            if group.cut is not None:
                lowest = [group.cut] if any(below(cut, group.cut) for cut in lowest) else []
            else:
                ceiling = _next_cut(groups, place) or self._timeline.end
                lowest = self._lowest(lowest, ceiling, group.reads)
            if not lowest:
                return place
        return None

    def never_shown(self, reads: Sequence[Read]) -> list[Read]:
        """The reads that no state is shown by."""
        left = list(reads)
        for cut in self._walk([self._timeline.start], self._timeline.end, []):
            left = [read for read in left if not self._shows(cut, [read])]
            if not left:
                break
        return left

    def first_skipped(self, groups: Sequence[Group]) -> Cut | None:
        """Where every order of the writes comes to a state that is not shown in its turn.

        None if some order has all of its states shown; else the furthest that one has.
        """
        furthest = self._timeline.start
        waiting = [(furthest, 0)]
        seen = set(waiting)
        looked_at = 0
        while waiting:
            cut, place = waiting.pop()
            if cut != groups[place].cut:
                looked_at += 1
                if looked_at > self._bound:
                    raise Undecided
                if not self._is(cut, groups[place]):
                    continue
            furthest = max(furthest, cut, key=sum)
            if (cut, place) == (self._timeline.end, len(groups) - 1):
                return None
            ceiling = _next_cut(groups, place + 1) or self._timeline.end
            for further in (cut, *self._timeline.after(cut)):
                for step in ((further, place), (further, place + 1)):
                    if step[1] < len(groups) and step not in seen and below(further, ceiling):
                        seen.add(step)
                        waiting.append(step)
        return furthest

    def _is(self, cut: Cut, group: Group) -> bool:
        if group.cut is not None:
            return self._same(cut, group.cut)
        return self._shows(cut, group.reads)

    def _lowest(self, starts: list[Cut], ceiling: Cut, reads: Sequence[Read]) -> list[Cut]:
        found: list[Cut] = []
        for cut in self._walk(starts, ceiling, found):
            if self._shows(cut, reads):
                found.append(cut)
        return found

    def _walk(self, starts: list[Cut], ceiling: Cut, closed: list[Cut]) -> Iterator[Cut]:
        """Reachable cuts from the starts up, lower ones first; none at or above those closed."""
        waiting = [(sum(cut), cut) for cut in starts if below(cut, ceiling)]
        heapq.heapify(waiting)
        seen = {cut for _, cut in waiting}
        looked_at = 0
        while waiting:
            _, cut = heapq.heappop(waiting)
            if any(below(known, cut) for known in closed):
                continue
            looked_at += 1
            if looked_at > self._bound:
                raise Undecided
            self._prepare([cut, *(next_ for _, next_ in waiting[:_AHEAD])])
            yield cut
            for further in self._timeline.after(cut):
                if further not in seen and below(further, ceiling):
                    seen.add(further)
                    heapq.heappush(waiting, (sum(further), further))


def _next_cut(groups: Sequence[Group], start: int) -> Cut | None:
    """The first known cut of a group at or after a place."""
    cuts = (groups[place].cut for place in range(start, len(groups)))
    return next((cut for cut in cuts if cut is not None), None)
