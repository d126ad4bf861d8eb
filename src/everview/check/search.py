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

    `shows` tells whether reads have the rows of a cut, `same` whether two cuts have the same rows;
    `prepare` gets the cuts that are looked at next.
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
        """The reads that show no state."""
        remaining = list(reads)
        for cut in self._walk([self._timeline.start], self._timeline.end, []):
            remaining = [read for read in remaining if not self._shows(cut, [read])]
            if not remaining:
                break
        return remaining

    def first_skipped(self, groups: Sequence[Group]) -> Cut | None:
        """None if the reads show all states of some order of the writes, in their turn; else the
        furthest cut up to which they do."""
        furthest = self._timeline.start
        pending = [(furthest, 0)]
        queued = set(pending)
        cut_count = 0
        while pending:
            cut, place = pending.pop()
            if cut != groups[place].cut:
                cut_count += 1
                if cut_count > self._bound:
                    raise Undecided
                if not self._is(cut, groups[place]):
                    continue
            furthest = max(furthest, cut, key=sum)
            if (cut, place) == (self._timeline.end, len(groups) - 1):
                return None
            ceiling = _next_cut(groups, place + 1) or self._timeline.end
            for next_cut in (cut, *self._timeline.after(cut)):
                for step in ((next_cut, place), (next_cut, place + 1)):
                    if step[1] < len(groups) and step not in queued and below(next_cut, ceiling):
                        queued.add(step)
                        pending.append(step)
        return furthest

    def _is(self, cut: Cut, group: Group) -> bool:
        if group.cut is not None:
            return self._same(cut, group.cut)
        return self._shows(cut, group.reads)

    def _lowest(self, starts: list[Cut], ceiling: Cut, reads: Sequence[Read]) -> list[Cut]:
        lowest: list[Cut] = []
        for cut in self._walk(starts, ceiling, lowest):
            if self._shows(cut, reads):
                lowest.append(cut)
        return lowest

    def _walk(self, starts: list[Cut], ceiling: Cut, closed_cuts: list[Cut]) -> Iterator[Cut]:
        """Reachable cuts from the starts up, lower ones first; none at or above a closed cut."""
        pending = [(sum(cut), cut) for cut in starts if below(cut, ceiling)]
        heapq.heapify(pending)
        queued = {cut for _, cut in pending}
        cut_count = 0
        while pending:
            _, cut = heapq.heappop(pending)
            if any(below(closed_cut, cut) for closed_cut in closed_cuts):
                continue
            cut_count += 1
            if cut_count > self._bound:
                raise Undecided
            self._prepare([cut, *(pending_cut for _, pending_cut in pending[:_AHEAD])])
            yield cut
            for next_cut in self._timeline.after(cut):
                if next_cut not in queued and below(next_cut, ceiling):
                    queued.add(next_cut)
                    heapq.heappush(pending, (sum(next_cut), next_cut))


def _next_cut(groups: Sequence[Group], start: int) -> Cut | None:
    """The first known cut of a group at or after a place."""
    cuts = (groups[place].cut for place in range(start, len(groups)))
    return next((cut for cut in cuts if cut is not None), None)
