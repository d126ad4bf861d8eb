"""The end of a plan: a view's rows, as readers see them once the epoch is committed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.buffers import one_batch
from everview.codec.groups import GroupCodec
from everview.codec.point import PointDecoder
from everview.codec.rows import BareCodec, join
from everview.delta import rows_of
from everview.errors import Damaged
from everview.operators.bags import Bagged, BagRows, bagged
from everview.schema import Column
from everview.state import State

COUNT = "_count"
_GONE = b"gone"
_KEYS = b"\xff"  # begins a note of keys; no key of a row begins so
_HEADER = struct.Struct("<QI")  # epoch, number of keys
_SPLIT = struct.Struct("<QII")
_NOTHING = bytes(_SPLIT.size)


class Touched(NamedTuple):
    """The rows of some keys as they are stored, before and after an epoch; b"" where there is no
    row."""

    before: list[bytes]
    after: list[bytes]

    def log(self) -> pa.Table:
        """What followers of the view read: the rows that differ."""
        before, after = pa.array(self.before, pa.binary()), pa.array(self.after, pa.binary())
        rows = pa.table({"before": before, "after": after})
        return rows.filter(pc.not_equal(before, after))


class ViewSink:
    """Keep every row of a view under its key, with its count.

    Keys:  those of a view with parameters begin with the values of the parameters, which are its
           first columns, so that the rows of a member are together.
    Law:   the rows, each as often as its count, are the sum of all deltas.
    State: key -> (epoch, new, previous): the row as of the epoch that wrote it last, and the row
           before. A reader takes `new` if that epoch is committed, else `previous`. A bag has the
           keys whose rows went in the last epoch: the next epoch removes them.
    Cost:  one state read and one write for each key of the delta.
    """

    def __init__(
        self, columns: tuple[Column, ...], key: tuple[str, ...], parameters: int = 0
    ) -> None:
        self.columns = columns
        key_columns = [column for column in columns if column.name in key]
        self._parameters = parameters
        self._members = GroupCodec(key_columns[:parameters])
        self._keys = GroupCodec(key_columns[parameters:])
        self._rest = BagRows([column for column in columns if column.name not in key])
        stored = [*columns, Column(COUNT, pa.int64(), False)]
        self._shape = pa.schema([pa.field(c.name, c.type, c.nullable) for c in stored])
        self.image = pa.struct([pa.field(column.name, column.type) for column in columns])
        self._rows = BareCodec(stored)
        self._points = PointDecoder(stored)

    def apply(self, delta: pa.Table, state: State, epoch: int, committed: int) -> Touched:
        """Apply a delta; returns the rows of the keys that it touched."""
        changed = bagged(delta, self._encode_keys(delta), self._rest.encode(delta))
        keys = changed.unique.to_pylist()
        if not keys:
            return Touched([], [])
        stored = state.get_many(keys)
        previous = all_current(stored, committed)
        counts = changed.totals() + self._counts(previous)
        if np.any(counts < 0):
            raise Damaged("a row would be in the view a negative number of times")
        last = _last(changed)
        fresh = self._encode(rows_of(changed.rows.take(pa.array(last))), counts)
        came = changed.weights[last] > 0
        rows = [
            b"" if count == 0 else (new if new_row else self._recounted(old, int(count)))
            for new, old, count, new_row in zip(fresh, previous, counts, came, strict=True)
        ]
        state.put_many(keys, split_rows(epoch, rows, previous))
        went = zip(keys, rows, previous, strict=True)
        gone = [key for key, row, old in went if old and not row]
        self._forget(state, keys, gone, epoch, committed)
        return Touched(previous, rows)

    def _forget(
        self, state: State, written: list[bytes], gone: list[bytes], epoch: int, committed: int
    ) -> None:
        """Remove keys that went in an epoch that is committed, and note those of this one. Other
        parts of the shard may have noted some in this epoch already, which readers still see."""
        _, notes, _ = state.get_bags([_GONE])
        earlier = {note: keys for note in notes if (keys := _keys_of(note, committed)) is not None}
        leftover = sorted(set(chain(*earlier.values())).difference(written))
        if leftover:
            state.put_many(leftover, [b""] * len(leftover))
        changes = [*((note, -1) for note in earlier), *([(_note(gone, epoch), 1)] if gone else [])]
        if changes:
            rows, weights = zip(*changes, strict=True)
            state.change_bags([_GONE] * len(changes), list(rows), list(weights))

    def _counts(self, rows: list[bytes]) -> np.ndarray:
        present = [row for row in rows if row]
        counts = np.zeros(len(rows), np.int64)
        if present:
            (stored_counts,) = self._rows.decode(*join(present), [len(self.columns)])
            counts[[bool(row) for row in rows]] = stored_counts.to_numpy()
        return counts

    def _encode(self, rows: pa.Table, counts: np.ndarray) -> list[bytes]:
        whole = rows.append_column(COUNT, pa.array(counts))
        encoded: list[bytes] = self._rows.encode(one_batch(whole)).to_pylist()
        return encoded

    def _recounted(self, row: bytes, count: int) -> bytes:
        return self._encode(self.decode([row]).drop_columns(COUNT), np.array([count]))[0]

    def decode(self, rows: list[bytes]) -> pa.Table:
        """Rows with the column COUNT."""
        arrays = self._rows.decode(*join(rows), range(len(self._shape)))
        return pa.Table.from_arrays(arrays, schema=self._shape)

    def read(self, values: Iterator[list[bytes]], committed: int) -> Iterator[pa.Table]:
        """Rows as of the committed epoch, each as often as its count says."""
        for rows, counts in self.counted(values, committed):
            yield repeated(rows, counts)

    def counted(
        self, values: Iterator[list[bytes]], committed: int
    ) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Rows as of the committed epoch, and their counts."""
        for batch in values:
            rows = list(filter(None, all_current(batch, committed)))
            if rows:
                table = self.decode(rows)
                yield table.drop_columns(COUNT), table[COUNT].to_numpy()

    def changes(self, log: pa.Table) -> pa.Table:
        """A log as rows with `op`, `before` and `after`. A row that is there several times goes and
        comes as often."""
        old, new = (log[name].to_pylist() for name in ("before", "after"))
        rows_before, counts_before = self._images(old)
        rows_after, counts_after = self._images(new)
        fewer = np.minimum(counts_before, counts_after)
        updated = np.where(self._differ(old, new, counts_before, counts_after), fewer, 0)
        same = fewer - updated
        numbers = {
            "update": updated,
            "delete": counts_before - updated - same,
            "insert": counts_after - updated - same,
        }
        every = np.arange(len(old))
        places = {op: np.repeat(every, number) for op, number in numbers.items()}
        none = {op: pa.nulls(len(at), pa.int64()) for op, at in places.items()}
        before = [pa.array(places[op]) if op != "insert" else none[op] for op in places]
        after = [pa.array(places[op]) if op != "delete" else none[op] for op in places]
        ops = [pa.array([op] * len(at), pa.string()) for op, at in places.items()]
        return pa.table(
            {
                "op": pa.concat_arrays(ops),
                "before": rows_before.take(pa.concat_arrays(before)),
                "after": rows_after.take(pa.concat_arrays(after)),
            }
        )

    def _images(self, rows: list[bytes]) -> tuple[pa.StructArray, np.ndarray]:
        """Stored rows as structs, NULL where there is none, and how often each is there."""
        present = np.array([bool(row) for row in rows], bool)
        decoded = self.decode([row for row in rows if row])
        counts = np.zeros(len(rows), np.int64)
        counts[present] = decoded[COUNT].to_numpy()
        columns = decoded.drop_columns(COUNT).combine_chunks().columns
        arrays = [column.combine_chunks() for column in columns]
        structs = pa.StructArray.from_arrays(arrays, fields=list(self.image))
        return structs.take(pa.array(np.cumsum(present) - 1, mask=~present)), counts

    def _differ(
        self, old: list[bytes], new: list[bytes], count: np.ndarray, later: np.ndarray
    ) -> np.ndarray:
        """Of stored rows, whether the new one is another; not if only its count is."""
        differ = np.array([a != b for a, b in zip(old, new, strict=True)], bool)
        (recounted,) = np.nonzero((count != later) & (count > 0) & (later > 0))
        if len(recounted):
            rows = self.decode([old[i] for i in recounted]).drop_columns(COUNT)
            again = self._encode(rows, later[recounted])
            differ[recounted] = [a != new[i] for i, a in zip(recounted, again, strict=True)]
        return differ

    def decode_row(self, row: bytes) -> dict[str, Any]:
        """One row, without its count."""
        return self._points.decode(row, range(len(self.columns)))

    def _encode_keys(self, rows: pa.Table) -> pa.BinaryArray:
        keys = self._keys.encode(rows)
        if not self._parameters:
            return keys
        return pc.binary_join_element_wise(self._members.encode(rows), keys, pa.scalar(b""))

    def key_of(self, rows: pa.Table) -> list[bytes]:
        keys: list[bytes] = self._encode_keys(rows).to_pylist()
        return keys

    def prefix_of(self, values: pa.Table) -> bytes:
        """What the keys of a member's rows begin with; `values` is one row of parameters."""
        prefix: bytes = self._members.encode(values)[0].as_py()
        return prefix

    def plain_key(self, values: Sequence[Any]) -> bytes | None:
        """The key of a row from its values, in the order of the view's columns; None if a value
        isn't plainly of its column's type."""
        key = self._keys.encode_plain(values[self._parameters :])
        if key is None or not self._parameters:
            return key
        member = self._members.encode_plain(values[: self._parameters])
        return None if member is None else member + key


@lru_cache(1024)
def sink_of(
    columns: tuple[Column, ...], key: tuple[str, ...], parameters: tuple[str, ...]
) -> ViewSink:
    """The sink of a view, which takes longer to make than to read a row with."""
    return ViewSink(columns, key, len(parameters))


def _note(keys: list[bytes], epoch: int) -> bytes:
    """Keys that went in an epoch, as a row of a bag."""
    lengths = np.array(list(map(len, keys)), "<u4").tobytes()
    return b"".join([_KEYS, _HEADER.pack(epoch, len(keys)), lengths, *keys])


def _keys_of(note: bytes, committed: int) -> list[bytes] | None:
    """The keys of a note; None if it is of an epoch that is not committed. Earlier versions noted
    single keys."""
    if not note.startswith(_KEYS):
        return [note]
    epoch, number = _HEADER.unpack_from(note, len(_KEYS))
    if epoch > committed:
        return None
    lengths = np.frombuffer(note, "<u4", number, len(_KEYS) + _HEADER.size)
    ends = np.cumsum(lengths, dtype=np.int64) + len(_KEYS) + _HEADER.size + lengths.nbytes
    return [note[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def split_rows(epoch: int, new: list[bytes], previous: list[bytes]) -> list[bytes]:
    """Rows in their stored form; b"" where there is no row and was none."""
    heads = map(_SPLIT.pack, repeat(epoch), map(len, new), map(len, previous))
    values = list(map(b"".join, zip(heads, new, previous, strict=True)))
    if min(map(len, values), default=_SPLIT.size + 1) == _SPLIT.size:
        return [value if len(value) > _SPLIT.size else b"" for value in values]
    return values


def current(value: bytes, committed: int) -> bytes:
    """The row that a reader at the committed epoch sees; b"" for none."""
    return all_current([value], committed)[0]


def all_current(values: list[bytes], committed: int) -> list[bytes]:
    """The rows that a reader at the committed epoch sees."""
    begin = _SPLIT.size
    heads = [_SPLIT.unpack_from(value or _NOTHING) for value in values]
    newest = max((epoch for epoch, _, _ in heads), default=0)
    if newest > committed + 1:
        raise Damaged(f"a row of the view is of epoch {newest}, but only {committed} is committed")
    return [
        value[begin : begin + new] if epoch <= committed else value[begin + new :]
        for value, (epoch, new, _) in zip(values, heads, strict=True)
    ]


def repeated(rows: pa.Table, counts: np.ndarray) -> pa.Table:
    if np.all(counts == 1):
        return rows
    return rows.take(pa.array(np.repeat(np.arange(len(counts)), counts)))


def _last(changed: Bagged) -> np.ndarray:
    """The place of one row for each key: of a row that came, if any did."""
    order = np.lexsort((changed.weights > 0, changed.which))
    ends = np.searchsorted(changed.which, np.arange(len(changed.unique)), "right")
    last: np.ndarray = order[ends - 1]
    return last
