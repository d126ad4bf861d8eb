"""The stores that the behaviour suite runs over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from everview.intake import keys_to_arrow, rows_to_arrow
from everview.schema import TableSchema
from everview.stores.base import Store
from everview.stores.embedded import EmbeddedStore
from tests.stores.memory import MemoryStore

STORES: dict[str, Callable[[Path], Store]] = {
    "embedded": lambda path: EmbeddedStore(str(path / "store.ev"), create=True),
    "memory": lambda path: MemoryStore(),
}

SCHEMA = TableSchema.of(
    "accounts",
    {"branch": "STRING", "id": "BIGINT", "owner": "STRING", "balance": "DECIMAL(12,2)"},
    ("branch", "id"),
    regions=3,
)


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = STORES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def accounts(store: Store) -> Store:
    """The store with an empty table `accounts`."""
    store.create_table(SCHEMA)
    return store


def rows(*tuples: tuple[object, ...]) -> pa.Table:
    return rows_to_arrow(SCHEMA, [dict(zip(SCHEMA.names, t, strict=True)) for t in tuples])


def keys(*tuples: tuple[str, int]) -> pa.Table:
    return keys_to_arrow(SCHEMA, list(tuples))
