"""Keys and rows to bytes and back, whole Arrow batches at a time (docs/reference/formats.md)."""

from everview.codec.keys import KeyCodec
from everview.codec.rows import RowCodec
from everview.codec.versions import TableCodec

__all__ = ["KeyCodec", "RowCodec", "TableCodec"]
