"""The work of jobs and their tasks, as plain data that can go to any process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache

from everview.catalog import Positions
from everview.catalog.views import SLOTS
from everview.ring.parts import Parts, dealt_parts, whole_parts

FEW_CHANGES = 20_000


@dataclass(frozen=True)
class Step:
    """One epoch: which changes of which tables, in the store at an address.

    `start` None means a load: all rows as of `end` instead of the changes since `start`. `logs` has
    the states of views that someone follows, each with the epoch that its log begins after. A step
    of a load beside epochs has `notes`: the state for what it notes of its progress. `tasks` says
    of each slot which task takes it; without it, a task takes all slots of a shard.
    """

    address: str
    shards: tuple[int, ...]
    token: int
    epoch: int
    start: Positions | None
    end: Positions
    logs: Mapping[str, int] = field(default_factory=dict)
    notes: str | None = None
    slots: int = SLOTS
    tasks: tuple[int, ...] = ()

    @cached_property
    def whole_parts(self) -> Parts:
        """A part for each shard."""
        return whole_parts(self.shards, self.slots, self.tasks)

    @cached_property
    def parts(self) -> Parts:
        """The parts of operators whose inputs all lie by slots."""
        if not self.tasks:
            return self.whole_parts
        return dealt_parts(self.shards, self.slots, self.tasks)

    @cached_property
    def changes(self) -> int:
        start = self.start or {}
        return sum(self.end[t][r] - start[t][r] for t in start for r in start[t])

    @property
    def is_spread(self) -> bool:
        """Whether there is enough to do for several partitions. In a load there are no more rows
        of a table than it had changes."""
        if self.start is None:
            return sum(sum(regions.values()) for regions in self.end.values()) > FEW_CHANGES
        return self.changes > FEW_CHANGES

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    @lru_cache(8)
    def from_json(text: str) -> Step:
        document = json.loads(text)
        for name in ("shards", "tasks"):
            document[name] = tuple(document[name])
        for name in ("start", "end"):
            if document[name] is None:
                continue
            document[name] = {
                table: {int(region): sequence for region, sequence in positions.items()}
                for table, positions in document[name].items()
            }
        return Step(**document)


@dataclass(frozen=True)
class Task:
    """An operator's part of a step, or of any step of a program, by its name.

    `state` is where its state is; None computes without keeping any. `inputs` has, for each input
    of the node that has rows, its place and the names of its columns: the node's, the frame's.
    With `whole`, its parts are whole shards; with `hashed`, rows come with their slots.
    """

    step: Step | str
    node: str
    state: str | None
    inputs: tuple[tuple[int, tuple[tuple[str, str], ...]], ...]
    whole: bool = False
    hashed: bool = False
