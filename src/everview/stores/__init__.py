"""Stores, opened by address.

The address of an embedded store is the path of its directory. `Store.address` says the same with
what else another process has to know, such as its durability.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from everview.errors import DatabaseError
from everview.stores.base import Store
from everview.stores.embedded import SCHEME, files
from everview.stores.embedded.store import EmbeddedStore

_ADDRESS = re.compile(r"(?P<scheme>[a-z]\w+)(\+(?P<option>\w+))?:(?P<place>.+)", re.DOTALL)
_OTHERS: dict[str, Callable[[str], Store]] = {}


def open_store(address: str, create: bool = False, readonly: bool = False, **options: Any) -> Store:
    """The store at an address; with `create`, made if nothing is there. Raises `DatabaseError`."""
    parts = _ADDRESS.fullmatch(address)
    if parts and parts["scheme"] in _OTHERS:
        return _OTHERS[parts["scheme"]](address)
    if parts and parts["place"].startswith("//"):
        raise DatabaseError(f"there is no store for {address}; a database is a directory")
    if parts and parts["scheme"] == SCHEME:
        address, options = parts["place"], {"durability": parts["option"]} | options
    return EmbeddedStore(address, create=create, readonly=readonly, **options)


def path_of(address: str) -> str:
    """The place of a store, as a user writes it."""
    parts = _ADDRESS.fullmatch(address)
    return parts["place"] if parts and parts["scheme"] == SCHEME else address


def shared_store(address: str, readonly: bool) -> Store:
    """The store at an address, opened once for this process; anew if it was deleted, and another
    made in its place."""
    return _shared(address, readonly, files.identity(path_of(address)))


@lru_cache(8)
def _shared(address: str, readonly: bool, identity: object) -> Store:
    return open_store(address, readonly=readonly)


def add_scheme(scheme: str, open_at: Callable[[str], Store]) -> None:
    """Have addresses that begin with a scheme opened by a function."""
    _OTHERS[scheme] = open_at
