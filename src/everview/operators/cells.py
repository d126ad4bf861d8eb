"""Cells: rows added up by some columns, in blocks that lie in state one after the other.

A block has numbers to be added: what a later one has for a cell counts together with what earlier
ones have. A block is at most half as large as the one before it, or both become one; so a number is
written a few times, and a change is not looked for among all cells. The rows of a block are in the
order of one column, in chunks of which the least and the greatest value are known.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everview.codec.groups import GroupCodec
from everview.codec.streams import from_stream, to_stream
from everview.delta import weights_of
from everview.errors import Damaged
from everview.functions.arithmetic import sums
from everview.operators.bags import numbered, whole
from everview.schema import Column, has_floats
from everview.state import State

CHUNK = 1 << 15  # rows
_HEADER, _KEY = b"cells", struct.Struct(">5sQI")
_COLUMN, _ROWS = b"column", b"rows"

# for the column of the order, and for the least and the greatest values of chunks: which may have
# cells that are wanted
Wanted = Callable[[str, pa.Array, pa.Array], np.ndarray]


@dataclass(frozen=True)
class _Header:
    """The chunks of all blocks, each with its `block`, its number, its rows and the ends of its
    values, also of other columns than that of the order; the column of their order, '' if there is
    none; and how many rows all cells have."""

    chunks: pa.Table
    column: str
    rows: int

    def blocks(self) -> list[tuple[int, int]]:
        """The blocks, the oldest first, with their numbers of cells."""
        grouped = self.chunks.group_by("block", use_threads=False).aggregate([("rows", "sum")])
        columns = [grouped[name].to_pylist() for name in ("block", "rows_sum")]
        return sorted(zip(*columns, strict=True))

    def of(self, blocks: Sequence[int], others: bool = False) -> pa.Table:
        """The chunks of some blocks, or of all others."""
        are_of = np.isin(self.chunks["block"].to_numpy(), blocks)
        return self.chunks.filter(pa.array(are_of != others))


class Cells:
    """Cells of `keys` with the numbers `values`; `rows` is the one that counts rows. Blocks are in
    the order of one of the columns `ordered`, if there are any. Cells are one if `encode` gives the
    same bytes for their keys, by default if they are equal."""

    def __init__(
        self,
        keys: Sequence[Column],
        values: Sequence[Column],
        rows: str,
        ordered: Sequence[str],
        encode: Callable[[pa.Table], pa.BinaryArray] | None = None,
    ) -> None:
        self._encode = encode or GroupCodec(keys).encode
        self._keys = [column.name for column in keys]
        self._values = [column.name for column in values]
        self._rows = rows
        self._ordered = ordered
        self._schema = pa.schema([pa.field(c.name, c.type) for c in (*keys, *values)])

    def numbers_of(self, delta: pa.Table) -> pa.Table:
        """A delta of cells as numbers to be added, each cell once."""
        weights = weights_of(delta)
        only_new = bool(np.all(weights == 1))
        arrays = [whole(delta[name]) for name in self._keys]
        for name in self._values:
            column = whole(delta[name])
            column = column.fill_null(sums.zero(column.type)) if column.null_count else column
            arrays.append(column if only_new else _times(column, weights))
        return self._each_once(pa.Table.from_arrays(arrays, schema=self._schema), only_new)

    def counts_of(self, delta: pa.Table) -> pa.Table:
        """A delta of rows as numbers: the rows are the keys, and what is added is their count."""
        weights = weights_of(delta)
        arrays = [*(whole(delta[name]) for name in self._keys), pa.array(weights)]
        numbers = pa.Table.from_arrays(arrays, schema=self._schema)
        return self._each_once(numbers, bool(np.all(weights > 0)))

    def _each_once(self, numbers: pa.Table, only_new: bool) -> pa.Table:
        """Numbers added up, unless most are cells that were not there: there are many in a load."""
        return numbers if only_new else self.added_up(numbers)

    def add(self, numbers: pa.Table, state: State) -> None:
        """Add numbers to those that are there."""
        if not numbers.num_rows:
            return
        header = self._header(state) or self._first(numbers)
        rows = header.rows + int(np.sum(numbers[self._rows].to_numpy()))
        if rows < 0:
            raise Damaged("cells have lost more rows than they had")
        blocks, gone = header.blocks(), list[int]()
        new_block = blocks[-1][0] + 1 if blocks else 0
        while blocks and rows and blocks[-1][1] < 2 * len(numbers):
            gone.append(blocks.pop()[0])
            below = self._read(header.of(gone[-1:]), state)
            numbers = self.added_up(pa.concat_tables([below, numbers]))
        if not rows:  # no cell has any
            gone, numbers = [block for block, _ in blocks], numbers.slice(0, 0)
        _delete(header.of(gone), state)
        new = self._written(numbers, header.column, new_block, state)
        new = new.select(header.chunks.column_names)  # older states have fewer
        chunks = pa.concat_tables([header.of(gone, others=True), new])
        self._write_header(replace(header, chunks=chunks, rows=rows), state)

    def is_empty(self, state: State) -> bool:
        """Whether there are none."""
        return self._header(state) is None

    def read(self, state: State, wanted: Wanted) -> pa.Table:
        """The numbers of all cells that are wanted, and of others."""
        header = self._header(state)
        if header is None:
            return self._schema.empty_table()
        chunks = header.chunks
        if header.column:
            mask = wanted(header.column, whole(chunks["least"]), whole(chunks["greatest"]))
            for name in self._others(chunks):
                ends = whole(chunks[f"least {name}"]), whole(chunks[f"greatest {name}"])
                mask &= wanted(name, *ends)
            chunks = chunks.filter(pa.array(mask))
        return self._read(chunks, state)

    def added_up(self, numbers: pa.Table) -> pa.Table:
        """Each cell once, and none whose numbers are all 0."""
        ids, first = numbered(self._encode(numbers))
        count = len(first)
        if count == len(numbers):
            return numbers
        rows = numbers.select(self._keys).take(pa.array(first))
        is_there = np.zeros(count, np.bool_)
        for name in self._values:
            field = self._schema.field(name)
            added = sums.add_up(whole(numbers[name]), ids, count).cast(field.type)
            rows = rows.append_column(field, added)
            is_there |= pc.not_equal(added, sums.zero(added.type)).to_numpy(zero_copy_only=False)
        return rows.filter(pa.array(is_there))

    def _first(self, numbers: pa.Table) -> _Header:
        """The header before there are blocks; their order is that of the column with the most
        distinct values, since these tell the most chunks apart."""
        counts = {name: len(numbers[name].unique()) for name in self._ordered}
        column = max(self._ordered, key=counts.__getitem__, default="")
        return _Header(self._chunks(0, column, []), column, 0)

    def _header(self, state: State) -> _Header | None:
        (stored,) = state.get_many([_HEADER])
        if not stored:
            return None
        chunks = from_stream(stored)
        metadata = chunks.schema.metadata
        return _Header(
            chunks.replace_schema_metadata(), metadata[_COLUMN].decode(), int(metadata[_ROWS])
        )

    def _write_header(self, header: _Header, state: State) -> None:
        metadata = {_COLUMN: header.column.encode(), _ROWS: str(header.rows).encode()}
        chunks = header.chunks.combine_chunks().replace_schema_metadata(metadata)
        state.put_many([_HEADER], [to_stream(chunks) if len(chunks) else b""])

    def _written(self, numbers: pa.Table, column: str, block: int, state: State) -> pa.Table:
        """Write a block; returns its chunks."""
        numbers = numbers.sort_by(column) if column else numbers
        parts = [numbers.slice(at, CHUNK) for at in range(0, len(numbers), CHUNK)]
        chunks = self._chunks(block, column, parts)
        for key, part in zip(_keys(chunks), parts, strict=True):
            state.put_many([key], [to_stream(part)])
        return chunks

    def _chunks(self, block: int, column: str, parts: Sequence[pa.Table]) -> pa.Table:
        """The chunks of a block, whose rows are in the order of the column, with NULLs last."""
        type_ = self._schema.field(column).type if column else pa.null()
        known = [whole(part[column].drop_null()) if column else pa.nulls(0) for part in parts]
        none = pa.nulls(1, type_)
        least, greatest = (
            pa.concat_arrays([pa.array([], type_), *(end if len(end) else none for end in ends)])
            for ends in ([values[:1] for values in known], [values[-1:] for values in known])
        )
        ends = {}
        for name in self._ordered:
            if name != column and not has_floats(self._schema.field(name).type):
                each = [pc.min_max(part[name]) for part in parts]
                for word, end in (("least", "min"), ("greatest", "max")):
                    values = [one[end].as_py() for one in each]
                    ends[f"{word} {name}"] = pa.array(values, self._schema.field(name).type)
        return pa.table(
            {
                "block": pa.array([block] * len(parts), pa.int64()),
                "chunk": pa.array(range(len(parts)), pa.int64()),
                "rows": pa.array(map(len, parts), pa.int64()),
                "least": least,
                "greatest": greatest,
                **ends,
            }
        )

    def _others(self, chunks: pa.Table) -> list[str]:
        """The columns beside that of the order whose ends are known."""
        return [name for name in self._ordered if f"least {name}" in chunks.column_names]

    def _read(self, chunks: pa.Table, state: State) -> pa.Table:
        parts = [from_stream(stored) for stored in state.get_many(_keys(chunks))]
        return pa.concat_tables([self._schema.empty_table(), *parts]).combine_chunks()


def _keys(chunks: pa.Table) -> list[bytes]:
    """Where chunks are stored."""
    places = zip(chunks["block"].to_pylist(), chunks["chunk"].to_pylist(), strict=True)
    return [_KEY.pack(_HEADER, *place) for place in places]


def _delete(chunks: pa.Table, state: State) -> None:
    if len(chunks):
        state.put_many(_keys(chunks), [b""] * len(chunks))


def _times(values: pa.Array, weights: np.ndarray) -> pa.Array:
    """Numbers times 1 or -1."""
    return pc.if_else(pa.array(weights < 0), pc.negate(values), values)
