"""The states that tables can have been in, as the writes of a history order them.

A state is a cut: of each region, how many of its writes are in. A cut is reachable if no write is
in without all that precede it: those before it in its region, and those that ended before it
began. So the states form a lattice, and every one is reached from the start by single writes.
The papers order only the versions of one record: that is a history with a region for each key.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate

from everview.check.history import Commit, History, Key, Write

Cut = tuple[int, ...]
Record = tuple[str, Key]


class Timeline:
    """The writes of some tables (named in lower case), region by region, and their cuts."""

    def __init__(self, history: History, tables: Iterable[str]) -> None:
        table_names = set(tables)
        by_region: defaultdict[tuple[str, int], list[Write]] = defaultdict(list)
        for write in history.writes:
            if write.table.lower() in table_names:
                by_region[write.table.lower(), write.region].append(write)
        self.regions = sorted(by_region)
        self.writes = [
            sorted(by_region[region], key=lambda write: write.sequence) for region in self.regions
        ]
        self._sequences = [[write.sequence for write in writes] for writes in self.writes]
        self._begin_times = [_rising(write.began for write in writes) for writes in self.writes]
        self._end_times = [_ends(writes) for writes in self.writes]
        self.end: Cut = tuple(map(len, self.writes))
        first = min(history.commits, key=lambda commit: commit.epoch, default=None)
        self.start = self.cut(first) if first else tuple(0 for _ in self.regions)

    def cut(self, commit: Commit) -> Cut:
        """The cut of an epoch; it has no writes of regions that the epoch does not name."""
        positions = {table.lower(): regions for table, regions in commit.positions.items()}
        return tuple(
            bisect_right(sequences, positions.get(table, {}).get(region, 0))
            for (table, region), sequences in zip(self.regions, self._sequences, strict=True)
        )

    def is_reachable(self, cut: Cut) -> bool:
        begin_times = [times[count] for times, count in zip(self._begin_times, cut, strict=True)]
        latest = max((time for time in begin_times if time is not None), default=None)
        if latest is None:
            return True
        for (times, counts), count in zip(self._end_times, cut, strict=True):
            before = bisect_left(times, latest)
            if before and counts[before - 1] > count:
                return False
        return True

    def overtaken(self, cut: Cut) -> tuple[Write, Write] | None:
        """A write that the cut lacks and one that it has though it began later, if any."""
        if self.is_reachable(cut):
            return None
        latest = max(self.included(cut), key=lambda write: write.began or 0)
        excluded = (w for writes, n in zip(self.writes, cut, strict=True) for w in writes[n:])
        first = min((w for w in excluded if w.ended is not None), key=lambda w: w.ended or 0)
        return first, latest

    def next(self, cut: Cut) -> tuple[Write, ...]:
        """The first writes that a cut does not have, of each region."""
        counts = zip(self.writes, cut, strict=True)
        return tuple(writes[count] for writes, count in counts if count < len(writes))

    def after(self, cut: Cut) -> Iterator[Cut]:
        """The reachable cuts with one write more."""
        for region, count in enumerate(cut):
            if count < self.end[region]:
                next_cut = (*cut[:region], count + 1, *cut[region + 1 :])
                if self.is_reachable(next_cut):
                    yield next_cut

    def included(self, cut: Cut) -> list[Write]:
        """The writes of a cut, region by region."""
        return [
            write
            for writes, count in zip(self.writes, cut, strict=True)
            for write in writes[:count]
        ]


def below(cut: Cut, other: Cut) -> bool:
    """Whether a cut has no write that the other lacks."""
    return all(a <= b for a, b in zip(cut, other, strict=True))


class Contents:
    """The rows of the tables at a cut: for each record, the write of its row."""

    def __init__(self, timeline: Timeline) -> None:
        self.live: dict[Record, Write] = {}
        self._timeline = timeline
        self._cut: Cut = tuple(0 for _ in timeline.regions)
        self._versions: defaultdict[Record, tuple[list[int], list[Write]]] = defaultdict(
            lambda: ([], [])
        )
        for (table, _), writes in zip(timeline.regions, timeline.writes, strict=True):
            for count, write in enumerate(writes, start=1):
                counts, versions = self._versions[table, write.key]
                counts.append(count)
                versions.append(write)

    def move(self, cut: Cut) -> Iterator[tuple[Write | None, Write | None]]:
        """Go to another cut; yields for each record the write whose row goes and the one whose row
        comes."""
        for region, (old, new) in enumerate(zip(self._cut, cut, strict=True)):
            table = self._timeline.regions[region][0]
            between = self._timeline.writes[region][min(old, new) : max(old, new)]
            for record in dict.fromkeys((table, write.key) for write in between):
                counts, versions = self._versions[record]
                place = bisect_right(counts, new)
                version = versions[place - 1] if place else None
                removed = self.live.pop(record, None)
                if version is not None and version.row is not None:
                    self.live[record] = version
                yield removed, self.live.get(record)
        self._cut = cut


def _rising(times: Iterable[float | None]) -> list[float | None]:
    """For each count of writes, the latest time among them; None if none is known."""
    latest: list[float | None] = [None]
    for time in times:
        before = latest[-1]
        latest.append(before if time is None else time if before is None else max(before, time))
    return latest


def _ends(writes: list[Write]) -> tuple[list[float], list[int]]:
    """End times in order; and for each, how many writes a cut has that has all until then."""
    ends = sorted((w.ended, n) for n, w in enumerate(writes, start=1) if w.ended is not None)
    return [end for end, _ in ends], list(accumulate((count for _, count in ends), max))
