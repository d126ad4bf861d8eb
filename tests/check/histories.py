"""Histories in few words, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everview.check import Commit, Definition, History, Read, Verdict, Write, check_history

Row = dict[str, Any]


def writes_of(table: str, changes: Iterable[tuple[str, Row | None]]) -> list[Write]:
    """Puts and deletes, ordered only for each key, as in the papers: a region for each key."""
    regions: dict[str, int] = {}
    counts: dict[str, int] = {}
    writes = []
    for key, row in changes:
        region = regions.setdefault(key, len(regions))
        counts[key] = counts.get(key, 0) + 1
        writes.append(Write(table, (key,), row, region, counts[key]))
    return writes


def base_of(writes: Iterable[Write]) -> Commit:
    """The state that a history starts with: all these writes."""
    positions: dict[str, dict[int, int]] = {}
    for write in writes:
        positions.setdefault(write.table, {})[write.region] = write.sequence
    return Commit(0, positions)


def states(view: str, *rows: Iterable[Row]) -> list[Read]:
    """One reader that sees one state after the other."""
    return [Read(view, tuple(of)) for of in rows]


def judge(history: History, view: str, query: Any, *key: str, **options: Any) -> Verdict:
    return check_history(history, [Definition(view, query, key)], **options)[0]


def found(verdict: Verdict) -> Mapping[str, bool | None]:
    return {str(finding.level): finding.holds for finding in verdict.findings}
