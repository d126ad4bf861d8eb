"""Explaining a read that differs, where one epoch or one write explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everview.check.case import Case
from everview.check.fewest import by_relevance, fewest, live_writes
from everview.check.findings import CheckedRead
from everview.check.history import Key, Read, Write
from everview.check.rows import difference
from everview.check.timeline import Cut, below

_EPOCHS = 16
_VARIANTS = 100


@dataclass(frozen=True)
class Explanation:
    """What seems to have happened, and the writes to show with it."""

    hint: str = ""
    writes: Sequence[Write] = ()


def explain(
    case: Case, checked_read: CheckedRead, cut: Cut, relevant_writes: Sequence[Write]
) -> Explanation:
    """Why a read may differ from a cut: it shows another epoch; a write was lost, or applied twice;
    its unexpected rows are those of another epoch."""
    origin = _origin_of_unexpected(case, checked_read)
    sequences = {(write.table, write.key): write.sequence for write in origin.writes}
    later_writes = [
        write
        for write in case.timeline.included(cut)
        if write.sequence >= sequences.get((write.table, write.key), write.sequence + 1)
    ]
    for epoch, other_cut in _epochs_around(case, checked_read.read):
        if case.shows(other_cut, [checked_read.read]):
            return Explanation(f"it shows epoch {epoch}", [*origin.writes, *later_writes])
    places = {write.place for write in relevant_writes}
    context = [
        *relevant_writes,
        *(write for write in live_writes(later_writes) if write.place not in places),
    ]
    rows = (
        case.expected_rows(checked_read.read, context)
        - checked_read.missing
        + checked_read.unexpected
    )
    for variant, explanation in _variants(case, cut, context):
        if not any(difference(rows, case.expected_rows(checked_read.read, variant))):
            return Explanation(explanation.hint, [*context, *explanation.writes])
    if relevant_writes or origin.hint:
        return Explanation(origin.hint, [*origin.writes, *later_writes])
    return Explanation("no one write explains it; these are new in it", _new_in(case, cut))


def _new_in(case: Case, cut: Cut) -> list[Write]:
    """The writes of a cut that the epoch before it does not have."""
    cuts_before = [other for other in case.cuts.values() if other != cut and below(other, cut)]
    before = max(cuts_before, key=sum, default=case.timeline.start)
    counts = zip(case.timeline.writes, before, cut, strict=True)
    return [write for writes, start, end in counts for write in writes[start:end]]


def _origin_of_unexpected(case: Case, checked_read: CheckedRead) -> Explanation:
    """The closest epoch that has the unexpected rows, and the writes that make them there."""
    if not checked_read.unexpected:
        return Explanation()

    def makes_them(writes: Sequence[Write]) -> bool:
        return checked_read.unexpected <= case.expected_rows(checked_read.read, writes)

    for epoch, other_cut in _epochs_around(case, checked_read.read):
        if checked_read.unexpected <= case.expected_rows_at(checked_read.read, other_cut):
            live = by_relevance(
                live_writes(case.timeline.included(other_cut)), checked_read.unexpected
            )
            writes = fewest(live, makes_them)
            return Explanation(f"what is unexpected is in epoch {epoch}", writes)
    return Explanation()


def _epochs_around(case: Case, read: Read) -> list[tuple[int, Cut]]:
    """The epochs closest to that of a read, with their cuts."""
    epochs = [(epoch, cut) for epoch, cut in case.cuts.items() if epoch != read.epoch]
    return sorted(epochs, key=lambda pair: abs(pair[0] - (read.epoch or 0)))[:_EPOCHS]


def _variants(
    case: Case, cut: Cut, context: list[Write]
) -> Iterator[tuple[list[Write], Explanation]]:
    """The writes as if one of them had gone wrong, the newest first, with what went wrong."""
    for write, before in _newest(case, cut):
        others = [w for w in context if (w.table, w.key) != (write.table, write.key)]
        name = f"{write.table} {write.region}/{write.sequence}"
        yield [*others, *before], Explanation(f"as if {name} was lost", [*before, write])
        if write.row is not None:
            repeated = [*others, write, write]
            yield repeated, Explanation(f"as if {name} was applied twice", [write])


def _newest(case: Case, cut: Cut) -> list[tuple[Write, list[Write]]]:
    """The last writes of records in a cut, each with the one before it if there is one; those that
    the history started with come last."""
    ranked = []
    for writes, start, count in zip(case.timeline.writes, case.timeline.start, cut, strict=True):
        last: dict[Key, int] = {}
        for place in range(count - 1, -1, -1):
            if len(last) == _VARIANTS:
                break
            last.setdefault(writes[place].key, place)
        for key, place in last.items():
            before = next((w for w in reversed(writes[:place]) if w.key == key), None)
            rank = (place < start, count - place)
            ranked.append((rank, writes[place], [] if before is None else [before]))
    ranked.sort(key=lambda entry: entry[0])
    return [(write, before) for _, write, before in ranked[:_VARIANTS]]
