"""Verdicts as a person reads them, and as documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from everview.check.findings import CheckedRead, Counterexample, Finding, Level, Verdict
from everview.check.history import Write
from everview.check.rows import Rows
from everview.results.result import count_rows, render

_SHOWN = 12
_LEVELS = [level for level in Level if level is not Level.NONE]
_WORDS = {True: "holds", False: "broken", None: "undecided"}


def as_text(verdicts: Sequence[Verdict], level: Level) -> str:
    """A table of levels; then, for what keeps a view from `level`, why, with a counterexample."""
    columns: dict[str, list[str]] = {"view": [verdict.view for verdict in verdicts]}
    for each_level in _LEVELS:
        columns[str(each_level)] = [_word(verdict, each_level) for verdict in verdicts]
    columns["reached"] = [_level_reached(verdict) for verdict in verdicts]
    table = render(pa.table(columns), len(verdicts))
    lines = table.splitlines()[:-1]  # without the count of rows
    for verdict in verdicts:
        lines += _verdict_lines(verdict, level)
    return "\n".join(lines)


def as_document(verdict: Verdict) -> dict[str, Any]:
    """A verdict with all that was found, for JSON."""
    return {
        "view": verdict.view,
        "reached": _level_reached(verdict),
        "levels": {str(f.level): _finding(f) for f in verdict.findings},
        "records": [
            {"key": list(key), "reached": str(level)} for key, level in verdict.records.items()
        ],
    }


def _word(verdict: Verdict, level: Level) -> str:
    return next((_WORDS[f.holds] for f in verdict.findings if f.level is level), "")


def _level_reached(verdict: Verdict) -> str:
    return str(verdict.level) if len(verdict.findings) == len(_LEVELS) else ""


def _verdict_lines(verdict: Verdict, level: Level) -> Iterator[str]:
    for finding in verdict.findings:
        if finding.level <= level and not finding.holds:
            yield f"{verdict.view}: {finding.level} is {_WORDS[finding.holds]}: {finding.why}"
    if example := verdict.counterexample(level):
        yield f"the smallest counterexample found: {example.reason}"
        yield from (f"  {line}" for line in _example_lines(example))
    if verdict.records:
        records_at = Counter(verdict.records.values())
        counts = [f"{count:,} {record_level}" for record_level, count in sorted(records_at.items())]
        yield f"{verdict.view}: of {len(verdict.records):,} records {', '.join(counts)}"
        for key, record_level in list(verdict.records.items()):
            if record_level < level:
                yield f"  {', '.join(map(str, key))}: {record_level}"


def _example_lines(example: Counterexample) -> Iterator[str]:
    for write in example.writes[:_SHOWN]:
        action = "delete" if write.row is None else f"put {_cells(write.row)}"
        yield f"write {write.table} {write.region}/{write.sequence}, key {_key(write)}: {action}"
    if len(example.writes) > _SHOWN:
        yield f"and {len(example.writes) - _SHOWN:,} writes more"
    for commit in example.commits:
        yield f"epoch {commit.epoch} committed {_positions(commit.positions)}"
    for checked_read in example.reads:
        yield from _read_lines(checked_read)
    if example.hint:
        yield example.hint


def _read_lines(checked_read: CheckedRead) -> Iterator[str]:
    read = checked_read.read
    target = read.view if read.key is None else f"{read.view}, key {', '.join(map(str, read.key))}"
    epoch = "" if read.epoch is None else f" at epoch {read.epoch}"
    reader = f" by {read.reader}" if read.reader else ""
    yield f"read of {target}{epoch}{reader}: {count_rows(len(read.rows))}"
    if checked_read.missing or checked_read.unexpected:
        yield from _rows("missing", checked_read.missing)
        yield from _rows("unexpected", checked_read.unexpected)
    else:
        yield from _rows("row", Counter(tuple(row.items()) for row in read.rows))


def _rows(label: str, rows: Rows) -> Iterator[str]:
    for row, count in list(rows.items())[:_SHOWN]:
        times = f" {count}x" if count > 1 else ""
        yield f"  {label}{times}: {_cells(dict(row))}"
    if len(rows) > _SHOWN:
        yield f"  and {len(rows) - _SHOWN:,} more {label}"


def _cells(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'NULL' if v is None else v}" for name, v in row.items())


def _key(write: Write) -> str:
    return ", ".join(map(str, write.key))


def _positions(positions: Mapping[str, Mapping[int, int]]) -> str:
    return "; ".join(
        f"{table} {', '.join(f'{region}/{last}' for region, last in regions.items())}"
        for table, regions in positions.items()
    )


def _finding(finding: Finding) -> dict[str, Any]:
    example = finding.counterexample
    return {
        "holds": finding.holds,
        "why": finding.why,
        "counterexample": None if example is None else _example(example),
    }


def _example(example: Counterexample) -> dict[str, Any]:
    return {
        "reason": example.reason,
        "writes": [vars(write) for write in example.writes],
        "commits": [vars(commit) for commit in example.commits],
        "reads": [
            vars(checked_read.read)
            | {
                "missing": _row_counts(checked_read.missing),
                "unexpected": _row_counts(checked_read.unexpected),
            }
            for checked_read in example.reads
        ],
        "hint": example.hint,
    }


def _row_counts(rows: Rows) -> list[dict[str, Any]]:
    return [{"row": dict(row), "count": count} for row, count in rows.items()]
