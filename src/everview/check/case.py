"""A view and its reads, put in order and compared with the states of its tables."""

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
        """The cut of each recorded epoch."""
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
    def wrong_reads(self) -> list[tuple[Read, Cut]]:
        """The reads that differ from the cut of their epoch, each with that cut, in order."""
        groups = [(g.cut, g.reads) for c in self.chains for g in c if g.cut is not None]
        wrong_reads: list[tuple[Read, Cut]] = []
        for name, evaluator in self.evaluators.items():
            view_groups = [(cut, _reads_of(name, reads)) for cut, reads in groups]
            cuts = [self._cut_of_view(evaluator, cut) for cut, _ in view_groups]
            for (cut, reads), rows in zip(view_groups, evaluator.rows_at_each(cuts), strict=True):
                wrong_reads += [
                    (read, cut) for read in reads if any(_differ(evaluator, read, rows))
                ]
        return wrong_reads

    @cached_property
    def search(self) -> Search:
        return Search(self.timeline, self.shows, self._same, self._prepare, self.bound)

    def shows(self, cut: Cut, reads: Sequence[Read]) -> bool:
        """Whether the reads are what the views are at a cut."""
        return not any(any(self.differ(read, cut)) for read in reads)

    def expected_rows(self, read: Read, writes: Sequence[Write]) -> Rows:
        """The rows that a read should show if the tables had just the rows of these writes."""
        evaluator = self.evaluators[read.view.lower()]
        return evaluator.expected_rows(read, evaluator.rows_of_writes(writes))

    def expected_rows_at(self, read: Read, cut: Cut) -> Rows:
        """The rows that a read should show at a cut."""
        evaluator = self.evaluators[read.view.lower()]
        return evaluator.expected_rows(read, evaluator.at(self._cut_of_view(evaluator, cut)))

    def differ(self, read: Read, cut: Cut) -> tuple[Rows, Rows]:
        """The rows that a read lacks of a cut, and that it has too many."""
        evaluator = self.evaluators[read.view.lower()]
        return difference(evaluator.rows_read(read), self.expected_rows_at(read, cut))

    def impossible(self) -> Read | None:
        """A read that shows no state of the tables; raises `Undecided` if that can't be decided.

        It tries committed states first, and of many doubtful reads only some.
        """
        reads = list(self.doubtful_reads())
        tried_reads = reads[:_SOME]
        (evaluator,) = self.evaluators.values()
        committed = [cut for cut in self.cuts.values() if self.timeline.is_reachable(cut)]
        for rows in evaluator.rows_at_each(committed):
            tried_reads = [read for read in tried_reads if any(_differ(evaluator, read, rows))]
        impossible_reads = self.search.never_shown(tried_reads)
        if not impossible_reads and len(reads) > _SOME:
            raise Undecided
        return impossible_reads[0] if impossible_reads else None

    def cut_of(self, read: Read) -> Cut | None:
        """The cut of the epoch of a read, if that is known."""
        return None if read.epoch is None else self.cuts.get(read.epoch)

    def nearest(self, read: Read) -> Cut:
        """The state to compare with a read that shows none: its epoch's, or the final one."""
        committed = self.cut_of(read)
        return self.timeline.end if committed is None else committed

    def last_reads(self) -> Iterable[Read]:
        """The reads of the last state: of the newest epoch, or the one that ended last."""
        if self.reads[0].epoch is not None:
            newest = max(read.epoch or 0 for read in self.reads)
            return [read for read in self.reads if read.epoch == newest]
        return [max(reversed(self.reads), key=lambda read: read.ended or 0)]

    def doubtful_reads(self) -> Iterator[Read]:
        """The reads that are not known to show a state; equal ones once."""
        wrong_ids = {id(read) for read, _ in self.wrong_reads}
        identities = set()
        for chain in self.chains:
            for group in chain:
                is_state = group.cut is not None and self.timeline.is_reachable(group.cut)
                for read in group.reads:
                    if is_state and id(read) not in wrong_ids:
                        continue
                    rows = self.evaluators[read.view.lower()].rows_read(read)
                    identity = (read.view.lower(), read.key, frozenset(rows.items()))
                    if identity not in identities:
                        identities.add(identity)
                        yield read

    def states(self) -> Iterator[list[Group]]:
        """The states of the view, in order: those read and those committed."""
        read_epochs = {group.reads[0].epoch for chain in self.chains for group in chain}
        unread_states = [
            (e, Group((), cut)) for e, cut in self.cuts.items() if e not in read_epochs
        ]
        for chain in self.chains:
            if chain[0].reads[0].epoch is None:
                yield chain
            else:
                groups = unread_states + [(group.reads[0].epoch, group) for group in chain]
                yield [group for _, group in sorted(groups, key=lambda pair: pair[0] or 0)]

    def records(self) -> list[Key]:
        """The keys of all rows that were read, if the view has a key."""
        (evaluator,) = self.evaluators.values()
        if not evaluator.key:
            return []
        rows = (row for read in self.reads for row in evaluator.rows_read(read))
        keys = [evaluator.record_of(read.key) for read in self.reads if read.key is not None]
        return list(dict.fromkeys([*keys, *map(evaluator.record, rows)]))

    def of_record(self, record: Key) -> Case:
        """The case of one record: its rows in every read that shows it."""
        (evaluator,) = self.evaluators.values()
        reads = []
        for read in self.reads:
            if read.key is None or evaluator.record_of(read.key) == record:
                rows = evaluator.rows_of_record(record, evaluator.rows_read(read)).elements()
                reads.append(replace(read, key=record, rows=tuple(map(dict, rows))))
        return replace(self, reads=tuple(reads))

    def smaller(self, writes: Sequence[Write], reads: Sequence[Read]) -> Case:
        """The case with fewer writes and reads."""
        history = History(list(writes), list(reads), self.commits)
        definitions = [evaluator.definition for evaluator in self.evaluators.values()]
        cases = [case_of(view, history, self.schemas, self.bound) for view in definitions]
        return cases[0] if len(cases) == 1 else joint_case(cases)

    def _prepare(self, cuts: list[Cut]) -> None:
        for evaluator in self.evaluators.values():
            evaluator.prepare([self._cut_of_view(evaluator, cut) for cut in cuts])

    def _same(self, cut: Cut, other: Cut) -> bool:
        return all(
            evaluator.at(self._cut_of_view(evaluator, cut))
            == evaluator.at(self._cut_of_view(evaluator, other))
            for evaluator in self.evaluators.values()
        )

    def _cut_of_view(self, evaluator: Evaluator, cut: Cut) -> Cut:
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
    reads = tuple(_reads_of(name, history.reads))
    return Case(view.name, history, {name: evaluator}, evaluator.timeline, reads, schemas, bound)


def joint_case(cases: Sequence[Case]) -> Case:
    """All views with all reads."""
    history = cases[0].history
    evaluators = {name: e for case in cases for name, e in case.evaluators.items()}
    tables = {table for case in cases for table, _ in case.timeline.regions}
    reads = tuple(read for read in history.reads if read.view.lower() in evaluators)
    timeline = Timeline(history, tables)
    return replace(cases[0], name="", evaluators=evaluators, timeline=timeline, reads=reads)


def _reads_of(view: str, reads: Iterable[Read]) -> list[Read]:
    return [read for read in reads if read.view.lower() == view]


def _differ(evaluator: Evaluator, read: Read, rows: Rows) -> tuple[Rows, Rows]:
    return difference(evaluator.rows_read(read), evaluator.expected_rows(read, rows))
