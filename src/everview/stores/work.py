"""The work of epochs on a shard: a record for each of the last epochs that touched it, and for its
load.

The records are in the shard's database `meta`. The epoch's own transaction writes its record, so
an epoch counts once, however often it is applied, and not at all if it failed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import astuple, dataclass

import numpy as np

KEPT_EPOCHS = 20
_RECORD = struct.Struct("<6Q")
_NOTHING = (0,) * 6


@dataclass(frozen=True)
class Work:
    """The work of an epoch on a shard; or the sum of several, with the number of the newest epoch.

    `rows_in` counts the rows of an operator's input deltas, `rows_out` those of its output; a
    view's output are the rows that it touched. `nanoseconds` are the operator's own: neither
    waiting for a turn nor the commit, which comes after this is written. `reads` counts items of
    state that were read and keys that were missing, `writes` items put or removed.
    """

    epoch: int
    rows_in: int
    rows_out: int
    nanoseconds: int
    reads: int
    writes: int


@dataclass(frozen=True)
class ShardWork:
    """The load of a shard, None if it had no rows, and the last epochs that touched it, the newest
    last: all of them since the load, or `KEPT_EPOCHS`. `rows_of_slots` says how many rows came to
    each slot of the database in the last epoch that counted them; empty if none has. `parts` has
    the first slot, the rows in and the nanoseconds of each part of the last epoch that dealt slots
    out."""

    load: Work | None
    epochs: tuple[Work, ...]
    rows_of_slots: tuple[int, ...] = ()
    parts: tuple[tuple[int, int, int], ...] = ()


@dataclass
class Tally:
    """Counts while an epoch is applied; rows by slot only if they are known."""

    rows_in: int = 0
    rows_out: int = 0
    nanoseconds: int = 0
    reads: int = 0
    writes: int = 0
    rows_of_slots: np.ndarray | None = None

    def record(self, epoch: int) -> bytes:
        return _RECORD.pack(
            epoch, self.rows_in, self.rows_out, self.nanoseconds, self.reads, self.writes
        )


def append_record(ring: bytes, record: bytes) -> bytes:
    """The ring with a further record; the oldest goes when there are too many. Parts of one epoch
    become one record."""
    last, new = records(ring[-_RECORD.size :]), records(record)
    if last and last[0].epoch == new[0].epoch:
        return ring[: -_RECORD.size] + _RECORD.pack(*astuple(total([*last, *new])))
    return ring[-(KEPT_EPOCHS - 1) * _RECORD.size :] + record


def records(ring: bytes) -> tuple[Work, ...]:
    return tuple(Work(*fields) for fields in _RECORD.iter_unpack(ring))


def counted(
    before: tuple[int, ...], rows: np.ndarray, slots: tuple[int, ...] | None
) -> tuple[int, ...]:
    """The rows of all slots: as they are counted now for these, and as before for the others."""
    if slots is None or len(before) != len(rows):
        return tuple(rows.tolist())
    now = np.array(before)
    now[list(slots)] = rows[list(slots)]
    return tuple(now.tolist())


def total(works: Iterable[Work]) -> Work:
    """All of them together."""
    epochs, *counts = zip(_NOTHING, *map(astuple, works), strict=True)
    return Work(max(epochs), *map(sum, counts))
