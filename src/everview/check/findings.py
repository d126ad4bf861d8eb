"""The verdicts of the checker: which levels hold for a view, and the smallest counterexample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from everview.check.history import Commit, Key, Read, Write
from everview.check.rows import Rows


class Level(IntEnum):
    """How well a view follows its tables; each level includes those before it."""

    NONE = 0
    CONVERGENCE = 1
    WEAK = 2
    STRONG = 3
    COMPLETE = 4

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True)
class CheckedRead:
    """A read, and how it differs from what it should have shown."""

    read: Read
    missing: Rows
    unexpected: Rows


@dataclass(frozen=True)
class Counterexample:
    """As few writes, reads and commits as show that something is wrong, and what."""

    reason: str
    writes: tuple[Write, ...] = ()
    reads: tuple[CheckedRead, ...] = ()
    commits: tuple[Commit, ...] = ()
    hint: str = ""

    @property
    def size(self) -> int:
        return len(self.writes) + len(self.reads) + len(self.commits)


@dataclass(frozen=True)
class Finding:
    """Whether what a level adds to the one before holds; None if that can't be decided."""

    level: Level
    holds: bool | None
    why: str = ""
    counterexample: Counterexample | None = None


@dataclass(frozen=True)
class Verdict:
    """The findings about a view; with `records`, also the level of each of its records."""

    view: str
    findings: tuple[Finding, ...]
    records: Mapping[Key, Level] = field(default_factory=dict)

    @property
    def level(self) -> Level:
        """The highest level that holds, with all before it."""
        highest = Level.NONE
        for finding in self.findings:
            if not finding.holds:
                break
            highest = finding.level
        return highest

    def holds(self, level: Level) -> bool | None:
        """Whether the view has reached a level; None if that can't be decided."""
        outcomes = [finding.holds for finding in self.findings if finding.level <= level]
        return False if False in outcomes else None if None in outcomes else True

    def counterexample(self, level: Level) -> Counterexample | None:
        """The smallest one against a level, if possible one that has writes."""
        examples = [f.counterexample for f in self.findings if f.level <= level]
        return min((c for c in examples if c), key=lambda c: (not c.writes, c.size), default=None)
