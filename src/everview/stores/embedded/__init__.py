"""The embedded store: tables in a directory, on LMDB, for any number of processes."""

from everview.stores.embedded.store import EmbeddedStore

__all__ = ["EmbeddedStore"]
