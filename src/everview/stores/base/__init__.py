"""The contracts: all that Everview asks of a store, and what a store promises.

Five parts: `tables` (rows by key, with a log of changes), `catalog` (typed records), `states`
(what operators remember), `leases` (one maintainer at a time) and `pins` (one epoch, for as long
as someone reads it). Every store runs the same behaviour suite (tests/stores/test_contract.py).
"""

from everview.stores.base.catalog import Catalog, CatalogReader, RecordChanges
from everview.stores.base.leases import ASIDE_SECONDS, LEASE_SECONDS, LOADS, RUN, WORK, Leases
from everview.stores.base.pins import MAX_AGE, PinnedCatalog, PinnedStore, PinNote, Pins
from everview.stores.base.reader import Reader
from everview.stores.base.states import SUSPECT, Shard, StateReader, States
from everview.stores.base.store import Abilities, Compaction, Space, Store
from everview.stores.base.tables import (
    BATCH_ROWS,
    DELETE,
    OF_LOADS,
    OF_VIEWS,
    PUT,
    LogRange,
    Observer,
    RegionStatus,
    Snapshot,
    TableReader,
    Tables,
    Write,
    WriteReport,
    change_schema,
    check_consumer,
    consumer_of,
)

__all__ = [
    "ASIDE_SECONDS",
    "BATCH_ROWS",
    "DELETE",
    "LEASE_SECONDS",
    "LOADS",
    "MAX_AGE",
    "OF_LOADS",
    "OF_VIEWS",
    "PUT",
    "RUN",
    "SUSPECT",
    "WORK",
    "Abilities",
    "Catalog",
    "CatalogReader",
    "Compaction",
    "Leases",
    "LogRange",
    "Observer",
    "PinNote",
    "PinnedCatalog",
    "PinnedStore",
    "Pins",
    "Reader",
    "RecordChanges",
    "RegionStatus",
    "Shard",
    "Snapshot",
    "Space",
    "StateReader",
    "States",
    "Store",
    "TableReader",
    "Tables",
    "Write",
    "WriteReport",
    "change_schema",
    "check_consumer",
    "consumer_of",
]
