"""Compaction of a database: the free space of each of its environments is given back.

It runs beside readers, writers and maintainers; each environment waits for a moment at a time. It
leaves what can't be compacted now as it is, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

from everview.errors import EverviewError, TableNotFound
from everview.stores.base import Compaction, Space
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.lease import locked
from everview.stores.embedded.space import Lock, give_back, space_of
from everview.stores.embedded.states import path_of
from everview.stores.embedded.together import lock_of

if TYPE_CHECKING:
    from everview.stores.embedded.store import EmbeddedStore

_PATIENCE = 5.0
Watch = Callable[[str, int, int], None]
Part = tuple[str, Callable[[], Environment], Lock]


def space(store: EmbeddedStore) -> Space:
    """The space of the whole database, without parts that are damaged or were dropped meanwhile."""
    total = Space()
    for _, open_part, _ in list(_parts(store)):
        with suppress(EverviewError, FileNotFoundError):
            total += space_of(open_part())
    return total


def compact(store: EmbeddedStore, watch: Watch | None = None) -> Compaction:
    """Give back all that is free. `watch` gets the path of each part, how many parts are done, and
    how many there are."""
    assert store.catalog.to_write  # raises if it is only to be read
    before, after = Space(), Space()
    skipped: dict[str, str] = {}
    parts = list(_parts(store))
    for number, (path, open_part, lock) in enumerate(parts):
        if watch:
            watch(path, number, len(parts))
        try:
            environment = open_part()
            space_before = space_of(environment)
            for _ in give_back(environment, lock):
                pass
            space_after = space_of(environment)
        except TimeoutError:
            skipped[path] = "a maintainer that was stopped holds it"
        except (EverviewError, FileNotFoundError) as error:
            if os.path.exists(os.path.join(store.path, path)):  # else it was dropped meanwhile
                skipped[path] = str(error)
        else:
            before, after = before + space_before, after + space_after
    return Compaction(before, after, skipped)


def _parts(store: EmbeddedStore) -> Iterator[Part]:
    """The environments of a database: the path of each, how to open it, and its lock."""
    yield "catalog", lambda: store.catalog.environment, nullcontext
    for table in store.tables():
        with suppress(TableNotFound):
            layout = store._layout(table)
            for number in range(layout.schema.regions):
                path = os.path.relpath(os.path.join(layout.directory, str(number)), store.path)
                yield path, partial(_region, store, table, number), nullcontext
    for directory in store.states.directories():
        for number in store.states.shards(directory):
            path = path_of(directory, number)
            lock = partial(locked, lock_of(os.path.join(store.path, path)), _PATIENCE)
            yield path, partial(store.states.environment, directory, number), lock


def _region(store: EmbeddedStore, table: str, number: int) -> Environment:
    return store._region(store._layout(table), number).environment
