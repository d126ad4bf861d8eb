"""Making a counterexample small: as few writes and reads as still show what is wrong.

A read that differs from a state keeps its difference: writes are left out as long as missing rows
stay rows of the view, and unexpected rows do not become rows of it. Reads that go backwards keep
showing states, and keep having no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from everview.check.case import Case
from everview.check.explain import explain
from everview.check.fewest import by_relevance, fewest, live_writes
from everview.check.findings import CheckedRead, Counterexample
from everview.check.history import Read, Write
from everview.check.search import Undecided
from everview.check.timeline import Cut


def smallest_difference(case: Case, read: Read, cut: Cut, reason: str) -> Counterexample:
    """Few writes with which a read differs from a cut in the same rows."""
    missing, unexpected = case.differ(read, cut)
    live = live_writes(case.timeline.included(cut))
    expected = case.expected_rows(read, live)
    differing = missing + unexpected

    def still_differs(writes: Sequence[Write]) -> bool:
        rows = case.expected_rows(read, writes)
        return all(rows[row] == expected[row] for row in differing)

    relevant_writes = fewest(by_relevance(live, differing), still_differs)
    checked_read = CheckedRead(read, missing, unexpected)
    explanation = explain(case, checked_read, cut, relevant_writes)
    writes = {write.place: write for write in (*relevant_writes, *explanation.writes)}
    return Counterexample(reason, _sorted(writes.values()), (checked_read,), hint=explanation.hint)


def smallest_disorder(case: Case, reason: str, valid: bool) -> Counterexample:
    """Few reads that have no order of states and, if all reads are valid, few writes with which
    the reads stay valid and without order."""
    case = _one_record(case) or case

    def still_disordered(writes: Sequence[Write]) -> bool:
        try:
            smaller_case = case.smaller(writes, reads)
            return not smaller_case.search.never_shown(reads) and _have_no_order(smaller_case)
        except Undecided:
            return False

    reads = fewest(
        list(case.reads), lambda reads: _have_no_order(replace(case, reads=tuple(reads)))
    )
    writes = case.timeline.included(case.timeline.end)
    needed_writes = fewest(writes, still_disordered) if valid else writes
    checked_reads = tuple(CheckedRead(read, Counter(), Counter()) for read in reads)
    return Counterexample(reason, _sorted(needed_writes), checked_reads)


def _have_no_order(case: Case) -> bool:
    try:
        return any(case.search.first_out_of_order(g) is not None for g in case.chains)
    except Undecided:
        return False


def _one_record(case: Case) -> Case | None:
    """The reads of one record, if they have no order already."""
    if len(case.evaluators) > 1:
        return None
    records = (case.of_record(record) for record in case.records())
    return next((record_case for record_case in records if _have_no_order(record_case)), None)


def _sorted(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(sorted(writes, key=lambda write: write.place))
