"""The embedded store: tables in a directory, on LMDB, for any number of processes."""

from everview.stores.embedded.store import SCHEME, EmbeddedStore

__all__ = ["SCHEME", "EmbeddedStore"]
