"""Parts of an epoch: slots of one shard that one task takes. An operator is applied once to a part.

A slot is a share of the hashes of keys. How many slots there are, and in which shard each of them
lies, is fixed; which task takes a slot may be another in every epoch. A row is at a *place*: its
slot, or the part that it is the output of, as columns that say its slot may be gone by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# of so many tasks: the engines' hash partitioning gives each a partition of its own
_LABELS = {1: (12,), 2: (12, 6), 4: (12, 6, 2, 0)}


@dataclass(frozen=True)
class Part:
    """Slots of a shard; None stands for all of them. The engine shuffles rows by `label`; rows that
    are the output of the part are at its `place`."""

    shard: int
    slots: tuple[int, ...] | None
    label: int
    place: int


@dataclass(frozen=True, eq=False)
class Parts:
    """The parts for some operators; `of_place` has the number of the part for each place."""

    all: tuple[Part, ...]
    tasks: int
    of_place: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.all)

    @property
    def first(self) -> Part:
        """The part for rows that are all in one place."""
        return self.all[int(self.of_place[0])]

    @property
    def labels(self) -> list[int]:
        """The label of each place."""
        return [self.all[number].label for number in self.of_place.tolist()]

    def present(self, places: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.int64], list[int]]:
        """The numbers of the parts of some places, and which parts these are."""
        numbers = self.of_place[places]
        return numbers, np.unique(numbers).tolist()


@lru_cache(64)
def whole_parts(shards: tuple[int, ...], slots: int, tasks: tuple[int, ...]) -> Parts:
    """A part for each shard, with all its slots."""
    base, number = _base(shards, slots), len(shards)
    parts = tuple(Part(shard, None, shard, base + i) for i, shard in enumerate(shards))
    of_place = [slot % number for slot in range(base)] + list(range(number))
    of_place += [shards.index(part.shard) for part in _dealt(shards, slots, tasks)]
    return Parts(parts, number, np.array(of_place))


@lru_cache(64)
def dealt_parts(shards: tuple[int, ...], slots: int, tasks: tuple[int, ...]) -> Parts:
    """The parts of an epoch that deals slots out to `tasks`: for each slot, which one takes it."""
    parts, base = _dealt(shards, slots, tasks), _base(shards, slots)
    of_slot = {slot: i for i, part in enumerate(parts) for slot in part.slots or ()}
    nowhere = [-1] * (base - slots + len(shards))
    of_place = [of_slot[slot] for slot in range(slots)] + nowhere + list(range(len(parts)))
    return Parts(tuple(parts), max(tasks) + 1, np.array(of_place))


def _base(shards: Sequence[int], slots: int) -> int:
    """The place of the first shard: the number of slots, rounded up so that places modulo the
    number of shards are shards."""
    return -(-slots // len(shards)) * len(shards)


def _dealt(shards: tuple[int, ...], slots: int, tasks: tuple[int, ...]) -> list[Part]:
    if not tasks:
        return []
    together: dict[tuple[int, int], list[int]] = {}
    for slot, task in enumerate(tasks):
        # each task begins with another shard, as one task at a time writes a shard
        turn = (slot - task) % len(shards)
        together.setdefault((task, turn), []).append(slot)
    labels = _LABELS.get(max(tasks) + 1, range(max(tasks) + 1))
    first = _base(shards, slots) + len(shards)
    return [
        Part(shards[own[0] % len(shards)], tuple(own), labels[task], first + i)
        for i, ((task, _), own) in enumerate(sorted(together.items()))
    ]
