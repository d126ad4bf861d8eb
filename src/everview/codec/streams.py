"""An Arrow table as bytes, and back."""

from __future__ import annotations

import pyarrow as pa


def to_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_stream(stream: bytes) -> pa.Table:
    return pa.ipc.open_stream(stream).read_all()
