"""A view and its reads, put in order and held against the states of its tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from everview.check.duck import Schemas, SqlEvaluator
from everview.check.evaluate import Definition, Evaluator, FunctionEvaluator
from everview.check.history import Commit, History, Key, Read, Write
from everview.check.rows import Rows, difference
from everview.check.search import Group, Search, Undecided
from everview.check.timeline import Cut, Timeline

_SOME = 64


@dataclass(frozen=True)
class Case:
    """Some reads of one or more views, over one timeline of all their tables.

    `evaluators` are by name of the view in lower case.
    """

    name: str
    history: History
    evaluators: Mapping[str, Evaluator]
    timeline: Timeline
    reads: tuple[Read, ...]
    schemas: Schemas
    bound: int

    @property
    def commits(self) -> list[Commit]:
        return self.history.commits

    @cached_property
    def cuts(self) -> dict[int, Cut]:
        """Of each epoch that was recorded, what it includes."""
        return {commit.epoch: self.timeline.cut(commit) for commit in self.commits}

    @cached_property
    def chains(self) -> list[list[Group]]:
        """The reads in their order: all by epoch, or those of each reader one by one."""
        by_epoch: defaultdict[int, list[Read]] = defaultdict(list)
        by_reader: defaultdict[str, list[Group]] = defaultdict(list)
        for read in self.reads:
            if read.epoch is None:
                by_reader[read.reader].append(Group((read,)))
            else:
                by_epoch[read.epoch].append(read)
        epochs = [Group(tuple(by_epoch[e]), self.cuts.get(e)) for e in sorted(by_epoch)]
        return ([epochs] if epochs else []) + list(by_reader.values())

    @cached_property
    def wrong(self) -> list[tuple[Read, Cut]]:
        """The reads that are not what their epoch committed, with that, in order."""
        groups = [(g.cut, g.reads) for c in self.chains for g in c if g.cut is not None]
        found: list[tuple[Read, Cut]] = []
        for name, evaluator in self.evaluators.items():
            of_view = [(cut, _of(name, reads)) for cut, reads in groups]
            cuts = [self._of_view(evaluator, cut) for cut, _ in of_view]
            for (cut, reads), rows in zip(of_view, evaluator.each(cuts), strict=True):
                found += [(read, cut) for read in reads if any(_differ(evaluator, read, rows))]
        return found

    @cached_property
    def search(self) -> Search:
        return Search(self.timeline, self.shows, self._same, self._prepare, self.bound)

    def shows(self, cut: Cut, reads: Sequence[Read]) -> bool:
        """Whether the reads are what the views are at a cut."""
        return not any(any(self.differ(read, cut)) for read in reads)

    def wanted(self, read: Read, writes: Sequence[Write]) -> Rows:
        """What a read should show if the tables had just the rows of these writes."""
        evaluator = self.evaluators[read.view.lower()]
        return evaluator.wanted(read, evaluator.of_writes(writes))

    def wanted_at(self, read: Read, cut: Cut) -> Rows:
        """What a read should show at a cut."""
        evaluator = self.evaluators[read.view.lower()]
        return evaluator.wanted(read, evaluator.at(self._of_view(evaluator, cut)))

    def differ(self, read: Read, cut: Cut) -> tuple[Rows, Rows]:
        """The rows that a read lacks of a cut, and that it has too many."""
        evaluator = self.evaluators[read.view.lower()]
        return difference(evaluator.shown(read), self.wanted_at(read, cut))

    def impossible(self) -> Read | None:
        """A read that shows no state of the tables; raises `Undecided` if that can't be told.

        States that were committed are tried first, and of many reads in doubt only some.
        """
        reads = list(self.doubtful_reads())
        some = reads[:_SOME]
        (evaluator,) = self.evaluators.values()
        committed = [cut for cut in self.cuts.values() if self.timeline.is_reachable(cut)]
        for rows in evaluator.each(committed):
            some = [read for read in some if any(_differ(evaluator, read, rows))]
        never = self.search.never_shown(some)
        if not never and len(reads) > _SOME:
            raise Undecided
        return never[0] if never else None

    def cut_of(self, read: Read) -> Cut | None:
        """What the epoch of a read includes, if that is known."""
        return None if read.epoch is None else self.cuts.get(read.epoch)

    def nearest(self, read: Read) -> Cut:
        """The state to hold a read against that shows none: its epoch's, or the final one."""
        known = self.cut_of(read)
        return self.timeline.end if known is None else known

    def last_reads(self) -> Iterable[Read]:
        """The reads of the last state: of the newest epoch, or the one that ended last."""
        if self.reads[0].epoch is not None:
            newest = max(read.epoch or 0 for read in self.reads)
            return [read for read in self.reads if read.epoch == newest]
        return [max(reversed(self.reads), key=lambda read: read.ended or 0)]

    def doubtful_reads(self) -> Iterator[Read]:
        """The reads that are not known to show a state; equal ones once."""
        wrong = {id(read) for read, _ in self.wrong}
        seen = set()
        for chain in self.chains:
            for group in chain:
                is_state = group.cut is not None and self.timeline.is_reachable(group.cut)
                for read in group.reads:
                    if is_state and id(read) not in wrong:
                        continue
                    shown = self.evaluators[read.view.lower()].shown(read)
                    identity = (read.view.lower(), read.key, frozenset(shown.items()))
                    if identity not in seen:
                        seen.add(identity)
                        yield read

    def states(self) -> Iterator[list[Group]]:
        """The states of the view, in order: those read and those committed."""
        read = {group.reads[0].epoch for chain in self.chains for group in chain}
        unread = [(e, Group((), cut)) for e, cut in self.cuts.items() if e not in read]
        for chain in self.chains:
            if chain[0].reads[0].epoch is None:
                yield chain
            else:
                groups = unread + [(group.reads[0].epoch, group) for group in chain]
                yield [group for _, group in sorted(groups, key=lambda pair: pair[0] or 0)]

    def records(self) -> list[Key]:
        """The keys of all rows that were read, if the view has a key."""
        (evaluator,) = self.evaluators.values()
        if not evaluator.key:
            return []
        rows = (row for read in self.reads for row in evaluator.shown(read))
        keys = [evaluator.record_of(read.key) for read in self.reads if read.key is not None]
        return list(dict.fromkeys([*keys, *map(evaluator.record, rows)]))

    def of_record(self, record: Key) -> Case:
        """The same for one record: of every read that shows it, its rows."""
        (evaluator,) = self.evaluators.values()
        reads = []
        for read in self.reads:
            if read.key is None or evaluator.record_of(read.key) == record:
                rows = evaluator.of_record(record, evaluator.shown(read)).elements()
                reads.append(replace(read, key=record, rows=tuple(map(dict, rows))))
        return replace(self, reads=tuple(reads))

    def smaller(self, writes: Sequence[Write], reads: Sequence[Read]) -> Case:
        """The same with some of the writes and reads."""
        history = History(list(writes), list(reads), self.commits)
        definitions = [evaluator.definition for evaluator in self.evaluators.values()]
        cases = [case_of(view, history, self.schemas, self.bound) for view in definitions]
        return cases[0] if len(cases) == 1 else together(cases)

    def _prepare(self, cuts: list[Cut]) -> None:
        for evaluator in self.evaluators.values():
            evaluator.prepare([self._of_view(evaluator, cut) for cut in cuts])

    def _same(self, cut: Cut, other: Cut) -> bool:
        return all(
            evaluator.at(self._of_view(evaluator, cut))
            == evaluator.at(self._of_view(evaluator, other))
            for evaluator in self.evaluators.values()
        )

    def _of_view(self, evaluator: Evaluator, cut: Cut) -> Cut:
        """A cut of this case's timeline as one of the view's own tables."""
        if evaluator.timeline is self.timeline:
            return cut
        counts = dict(zip(self.timeline.regions, cut, strict=True))
        return tuple(counts[region] for region in evaluator.timeline.regions)


def case_of(view: Definition, history: History, schemas: Schemas, bound: int) -> Case:
    """A view with all its reads."""
    evaluator: Evaluator
    if isinstance(view.query, str):
        evaluator = SqlEvaluator(view, view.query, history, schemas)
    else:
        evaluator = FunctionEvaluator(view, view.query, history)
    name = view.name.lower()
    reads = tuple(_of(name, history.reads))
    return Case(view.name, history, {name: evaluator}, evaluator.timeline, reads, schemas, bound)


def together(cases: Sequence[Case]) -> Case:
    """All views with all reads."""
    history = cases[0].history
    evaluators = {name: e for case in cases for name, e in case.evaluators.items()}
    tables = {table for case in cases for table, _ in case.timeline.regions}
    reads = tuple(read for read in history.reads if read.view.lower() in evaluators)
    timeline = Timeline(history, tables)
    return replace(cases[0], name="", evaluators=evaluators, timeline=timeline, reads=reads)


def _of(view: str, reads: Iterable[Read]) -> list[Read]:
    return [read for read in reads if read.view.lower() == view]


def _differ(evaluator: Evaluator, read: Read, rows: Rows) -> tuple[Rows, Rows]:
    return difference(evaluator.shown(read), evaluator.wanted(read, rows))
