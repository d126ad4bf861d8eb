"""What maintenance did."""

from __future__ import annotations

from dataclasses import dataclass, field

from everview.maintain.watching import Watcher


@dataclass
class Report:
    """What `maintain` did. `failed` says why views stopped, and `recovered` why all views were
    loaded again after a crash of the machine."""

    epochs: int = 0
    changes: int = 0
    rows: int = 0
    seconds: float = 0.0
    loaded: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    recovered: str | None = None
    watch: Watcher = field(default_factory=Watcher, repr=False, compare=False)
