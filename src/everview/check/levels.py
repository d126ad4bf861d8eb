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

from everview.check.case import Case, case_of, together
from everview.check.duck import schemas_of
from everview.check.evaluate import Definition
from everview.check.findings import Counterexample, Finding, Level, Shown, Verdict
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
    read = {read.view.lower() for read in history.reads}
    views = list(views)
    for view in views:
        if view.name.lower() not in read:
            raise InvalidHistory(
                f"the history has no reads of view {view.name}; it has reads of "
                f"{', '.join(sorted(read)) or 'no view at all'}"
            )
    columns = schemas_of(history, schemas or {})
    cases = [case_of(view, history, columns, bound) for view in views]
    verdicts = [_verdict(case, records) for case in cases]
    if len(cases) > 1:
        verdicts.append(Verdict("all together", (_together(cases, verdicts),)))
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
    return _converged(case), weak, strong, _complete(case)


def _converged(case: Case) -> Finding:
    for read in case.last_reads():
        if case.shows(case.timeline.end, [read]):
            continue
        why = "the last state read is not the view over the final tables"
        if case.cut_of(read) not in (None, case.timeline.end):
            why += (
                f": epoch {read.epoch} does not include all writes, which were forgotten, or the "
                "history ends too early"
            )
        example = smallest_difference(case, read, case.timeline.end, why)
        return Finding(Level.CONVERGENCE, False, why, example)
    return Finding(Level.CONVERGENCE, True)


def _all_valid(case: Case) -> Finding:
    try:
        read = case.impossible()
    except Undecided:
        return Finding(Level.WEAK, None, _MANY)
    if read is None:
        return Finding(Level.WEAK, True)
    why = "a read shows a state that the tables never had"
    example = smallest_difference(case, read, case.nearest(read), why)
    return Finding(Level.WEAK, False, why, example)


def _in_order(case: Case) -> Finding:
    broken = _commits_backwards(case) or _reads_backwards(case.reads)
    if broken:
        return Finding(Level.STRONG, False, broken.reason, broken)
    for read, cut in case.wrong:
        why = f"a read does not show the tables as epoch {read.epoch} committed them"
        return Finding(Level.STRONG, False, why, smallest_difference(case, read, cut, why))
    return _in_chains(case)


def _together(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> Finding:
    """Whether the reads of all views have one state for each epoch, or for a reader one order."""
    alone = [verdict.findings[_STRONG].holds for verdict in verdicts]
    if not all(alone):
        holds = False if False in alone else None
        return Finding(Level.STRONG, holds, "some are not by themselves")
    case = together(cases)
    if broken := _reads_backwards(case.reads):
        return Finding(Level.STRONG, False, broken.reason, broken)
    found = _in_chains(case)
    return _with_disorder(case, found, True)


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
    """Whether an epoch was committed twice, took back what one before included, or has a write
    without what precedes it."""
    commits = sorted(case.commits, key=lambda commit: commit.epoch)
    for before, commit in zip([None, *commits], commits, strict=False):
        cut = case.timeline.cut(commit)
        if writes := case.timeline.overtaken(cut):
            why = f"epoch {commit.epoch} has a write without one that ended before it began"
            return Counterexample(why, writes, commits=(commit,))
        if before is None:
            continue
        earlier = case.timeline.cut(before)
        if before.epoch == commit.epoch and earlier != cut:
            why = f"epoch {commit.epoch} was committed twice, with different positions"
            return Counterexample(why, commits=(before, commit))
        if not below(earlier, cut):
            why = f"epoch {commit.epoch} takes back writes that epoch {before.epoch} included"
            return Counterexample(why, commits=(before, commit))
    return None


def _reads_backwards(reads: Sequence[Read]) -> Counterexample | None:
    """Whether a read has an earlier epoch than one before it: of its reader, or in time."""
    newest: dict[str, Read] = {}
    for read in reads:
        before = newest.get(read.reader)
        if read.reader and before is not None and (before.epoch or 0) > (read.epoch or 0):
            return _backwards(before, read, "a reader's reads go backwards")
        newest[read.reader] = read
    ended = sorted((r for r in reads if r.ended is not None), key=lambda r: r.ended or 0)
    done, newest_done = 0, None
    for read in sorted((r for r in reads if r.began is not None), key=lambda r: r.began or 0):
        while done < len(ended) and (ended[done].ended or 0) < (read.began or 0):
            if newest_done is None or (ended[done].epoch or 0) > (newest_done.epoch or 0):
                newest_done = ended[done]
            done += 1
        if newest_done is not None and (newest_done.epoch or 0) > (read.epoch or 0):
            return _backwards(newest_done, read, "a read goes back behind one that ended before")
    return None


def _backwards(before: Read, read: Read, why: str) -> Counterexample:
    reason = f"{why}, from epoch {before.epoch} to {read.epoch}"
    shown = tuple(Shown(read, Counter(), Counter()) for read in (before, read))
    return Counterexample(reason, reads=shown)


def _complete(case: Case) -> Finding:
    try:
        found = [case.search.first_skipped(groups) for groups in case.states()]
    except Undecided:
        return Finding(Level.COMPLETE, None, _MANY)
    stuck = [cut for cut in found if cut is not None]
    if len(stuck) < len(found):
        return Finding(Level.COMPLETE, True)
    if len(case.chains) > 1:
        why = "several readers saw states without epochs, so there is no one order of them"
        return Finding(Level.COMPLETE, None, why)
    why = "a state between writes was never shown: each of these writes alone gives one"
    return Finding(Level.COMPLETE, False, why, Counterexample(why, case.timeline.next(stuck[0])))
