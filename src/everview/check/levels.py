"""Deciding how well views followed their tables, from a recorded history.

The levels are those of the WDP paper (III-B) and the dissertation (4.2.1):

Convergence  the last state read is the view over the final tables.
Weak         and every read is the view over some reachable state of the tables.
Strong       and states do not go backwards: there is a state for each epoch (or, where reads do
             not say their epoch, each read of a reader), never before the last, that all its reads
             show. The state is the epoch's positions where its commit was recorded.
Complete     and in some order of the writes, every state that they go through was shown.

A level that would need more states than the bound is undecided, never guessed. A record is decided
as a view of that record alone; what holds for the view holds for all of its records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from everview.check.case import Case, case_of, joint_case
from everview.check.duck import schemas_of
from everview.check.evaluate import Definition
from everview.check.findings import CheckedRead, Counterexample, Finding, Level, Verdict
from everview.check.history import History, Read
from everview.check.search import Undecided
from everview.check.shrink import smallest_difference, smallest_disorder
from everview.check.timeline import below
from everview.errors import InvalidHistory
from everview.schema import TableSchema

BOUND = 2_000
_STRONG = 2  # its place among the findings of a view
_MANY = "there are more states to look at than the bound; record the commits, or raise --bound"


def check_history(
    history: History,
    views: Iterable[Definition],
    schemas: Mapping[str, TableSchema] | None = None,
    records: bool = False,
    bound: int = BOUND,
) -> list[Verdict]:
    """A verdict for each view and, if there are several, one for all together.

    `schemas` are tables' definitions, for views in SQL; without, columns are those of the rows.
    With `records` each record of the views that have a key is decided too. `bound` is the most
    states that a search may look at. Raises `InvalidHistory` for what can't be checked.
    """
    history.validate()
    read_views = {read.view.lower() for read in history.reads}
    views = list(views)
    for view in views:
        if view.name.lower() not in read_views:
            raise InvalidHistory(
                f"the history has no reads of view {view.name}; it has reads of "
                f"{', '.join(sorted(read_views)) or 'no view at all'}"
            )
    columns = schemas_of(history, schemas or {})
    cases = [case_of(view, history, columns, bound) for view in views]
    verdicts = [_verdict(case, records) for case in cases]
    if len(cases) > 1:
        verdicts.append(Verdict("all together", (_strong_together(cases, verdicts),)))
    return verdicts


def _verdict(case: Case, records: bool) -> Verdict:
    findings = _findings(case)
    levels = {}
    if records:
        levels = {
            record: Verdict("", _findings(case.of_record(record))).level
            for record in case.records()
        }
    return Verdict(case.name, findings, levels)


def _findings(case: Case) -> tuple[Finding, ...]:
    strong = _in_order(case)
    weak = Finding(Level.WEAK, True) if strong.holds else _all_valid(case)
    strong = _with_disorder(case, strong, weak.holds is True)
    return _convergence(case), weak, strong, _complete(case)


def _convergence(case: Case) -> Finding:
    for read in case.last_reads():
        if case.shows(case.timeline.end, [read]):
            continue
        reason = "the last state read is not the view over the final tables"
        if case.cut_of(read) not in (None, case.timeline.end):
            reason += (
                f": epoch {read.epoch} does not include all writes, which were forgotten, or the "
                "history ends too early"
            )
        example = smallest_difference(case, read, case.timeline.end, reason)
        return Finding(Level.CONVERGENCE, False, reason, example)
    return Finding(Level.CONVERGENCE, True)


def _all_valid(case: Case) -> Finding:
    try:
        read = case.impossible()
    except Undecided:
        return Finding(Level.WEAK, None, _MANY)
    if read is None:
        return Finding(Level.WEAK, True)
    reason = "a read shows a state that the tables never had"
    example = smallest_difference(case, read, case.nearest(read), reason)
    return Finding(Level.WEAK, False, reason, example)


def _in_order(case: Case) -> Finding:
    counterexample = _commits_backwards(case) or _reads_backwards(case.reads)
    if counterexample:
        return Finding(Level.STRONG, False, counterexample.reason, counterexample)
    for read, cut in case.wrong_reads:
        reason = f"a read does not show the tables as epoch {read.epoch} committed them"
        return Finding(Level.STRONG, False, reason, smallest_difference(case, read, cut, reason))
    return _in_chains(case)


def _strong_together(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> Finding:
    """Whether the reads of all views have one state for each epoch, or for a reader one order."""
    outcomes = [verdict.findings[_STRONG].holds for verdict in verdicts]
    if not all(outcomes):
        holds = False if False in outcomes else None
        return Finding(Level.STRONG, holds, "some are not by themselves")
    case = joint_case(cases)
    if counterexample := _reads_backwards(case.reads):
        return Finding(Level.STRONG, False, counterexample.reason, counterexample)
    finding = _in_chains(case)
    return _with_disorder(case, finding, True)


def _in_chains(case: Case) -> Finding:
    try:
        for groups in case.chains:
            if case.search.first_out_of_order(groups) is not None:
                return Finding(Level.STRONG, False, "reads show states that go backwards or differ")
    except Undecided:
        return Finding(Level.STRONG, None, _MANY)
    return Finding(Level.STRONG, True)


def _with_disorder(case: Case, strong: Finding, valid: bool) -> Finding:
    if strong.holds is not False or strong.counterexample is not None:
        return strong
    return replace(strong, counterexample=smallest_disorder(case, strong.why, valid))


def _commits_backwards(case: Case) -> Counterexample | None:
    """An epoch that was committed twice, takes back writes of an earlier one, or has a write
    without those that precede it."""
    commits = sorted(case.commits, key=lambda commit: commit.epoch)
    for before, commit in zip([None, *commits], commits, strict=False):
        cut = case.timeline.cut(commit)
        if writes := case.timeline.overtaken(cut):
            reason = f"epoch {commit.epoch} has a write without one that ended before it began"
            return Counterexample(reason, writes, commits=(commit,))
        if before is None:
            continue
        cut_before = case.timeline.cut(before)
        if before.epoch == commit.epoch and cut_before != cut:
            reason = f"epoch {commit.epoch} was committed twice, with different positions"
            return Counterexample(reason, commits=(before, commit))
        if not below(cut_before, cut):
            reason = f"epoch {commit.epoch} takes back writes that epoch {before.epoch} included"
            return Counterexample(reason, commits=(before, commit))
    return None


def _reads_backwards(reads: Sequence[Read]) -> Counterexample | None:
    """A read of an earlier epoch than a read before it: of the same reader, or in time."""
    newest: dict[str, Read] = {}
    for read in reads:
        before = newest.get(read.reader)
        if read.reader and before is not None and (before.epoch or 0) > (read.epoch or 0):
            return _backwards(before, read, "a reader's reads go backwards")
        newest[read.reader] = read
    by_end = sorted((r for r in reads if r.ended is not None), key=lambda r: r.ended or 0)
    index, newest_ended = 0, None
    for read in sorted((r for r in reads if r.began is not None), key=lambda r: r.began or 0):
        while index < len(by_end) and (by_end[index].ended or 0) < (read.began or 0):
            if newest_ended is None or (by_end[index].epoch or 0) > (newest_ended.epoch or 0):
                newest_ended = by_end[index]
            index += 1
        if newest_ended is not None and (newest_ended.epoch or 0) > (read.epoch or 0):
            return _backwards(newest_ended, read, "a read goes back behind one that ended before")
    return None


def _backwards(before: Read, read: Read, description: str) -> Counterexample:
    reason = f"{description}, from epoch {before.epoch} to {read.epoch}"
    reads = tuple(CheckedRead(read, Counter(), Counter()) for read in (before, read))
    return Counterexample(reason, reads=reads)


def _complete(case: Case) -> Finding:
    try:
        skipped = [case.search.first_skipped(groups) for groups in case.states()]
    except Undecided:
        return Finding(Level.COMPLETE, None, _MANY)
    gaps = [cut for cut in skipped if cut is not None]
    if len(gaps) < len(skipped):
        return Finding(Level.COMPLETE, True)
    if len(case.chains) > 1:
        reason = "several readers saw states without epochs, so there is no one order of them"
        return Finding(Level.COMPLETE, None, reason)
    reason = "a state between writes was never shown: each of these writes alone gives one"
    return Finding(
        Level.COMPLETE, False, reason, Counterexample(reason, case.timeline.next(gaps[0]))
    )
