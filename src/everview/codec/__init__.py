"""Keys and rows to bytes and back, whole Arrow batches at a time (docs/reference/formats.md)."""

from everview.codec.keys import KeyCodec
from everview.codec.rows import RowCodec

__all__ = ["KeyCodec", "RowCodec"]
