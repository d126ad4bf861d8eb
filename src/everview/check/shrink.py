"""Making a counterexample small: as few writes and reads as still show what is wrong.

A read that differs from a state keeps its difference: writes are left out as long as the rows that
are missing stay rows of the view, and those that are unexpected do not become some. Reads that go
backwards keep showing states, and keep having no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from everview.check.case import Case
from everview.check.explain import explain
from everview.check.fewest import by_relevance, fewest, live_writes
from everview.check.findings import Counterexample, Shown
from everview.check.history import Read, Write
from everview.check.search import Undecided
from everview.check.timeline import Cut


def smallest_difference(case: Case, read: Read, cut: Cut, why: str) -> Counterexample:
    """Few writes that make a read differ from a cut as it does."""
    missing, unexpected = case.differ(read, cut)
    live = live_writes(case.timeline.included(cut))
    wanted = case.wanted(read, live)
    differing = missing + unexpected

    def still_differs(writes: Sequence[Write]) -> bool:
        found = case.wanted(read, writes)
        return all(found[row] == wanted[row] for row in differing)

    kept = fewest(by_relevance(live, differing), still_differs)
    shown = Shown(read, missing, unexpected)
    explanation = explain(case, shown, cut, kept)
    writes = {write.place: write for write in (*kept, *explanation.writes)}
    return Counterexample(why, _sorted(writes.values()), (shown,), hint=explanation.hint)


def smallest_disorder(case: Case, why: str, valid: bool) -> Counterexample:
    """Few reads that have no order of states and, if all reads are valid, few writes for which
    they are and have none."""
    case = _one_record(case) or case

    def still(writes: Sequence[Write]) -> bool:
        try:
            some = case.smaller(writes, reads)
            return not some.search.never_shown(reads) and _have_no_order(some)
        except Undecided:
            return False

    reads = fewest(list(case.reads), lambda some: _have_no_order(replace(case, reads=tuple(some))))
    writes = case.timeline.included(case.timeline.end)
    kept = fewest(writes, still) if valid else writes
    shown = tuple(Shown(read, Counter(), Counter()) for read in reads)
    return Counterexample(why, _sorted(kept), shown)


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
    return next((some for some in records if _have_no_order(some)), None)


def _sorted(writes: Iterable[Write]) -> tuple[Write, ...]:
    return tuple(sorted(writes, key=lambda write: write.place))
