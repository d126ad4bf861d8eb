"""A view as users hold it: its rows as of the committed epoch.

A read sees one committed epoch of the whole view. It never blocks maintenance nor waits for it;
a read that was overtaken by two epochs begins again at the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from everview.errors import UnsupportedSql, ViewNotFound
from everview.intake import keys_to_arrow
from everview.operators.sink import Overtaken, ViewSink, current, repeated
from everview.plan.nodes import Node
from everview.schema import TableSchema
from everview.stores.embedded import EmbeddedStore

Row = dict[str, Any]


class View:
    """A maintained query. Handles are cheap, and fail once the view is dropped."""

    def __init__(self, store: EmbeddedStore, name: str) -> None:
        self._store = store
        self.name = self._document(name)["name"]

    def __repr__(self) -> str:
        return f"<view {self.name}>"

    def _document(self, name: str | None = None) -> dict[str, Any]:
        name = name or self.name
        found = self._store.document(f"view/{name.lower()}")
        if found is None:
            views = [v["name"] for v in self._store.documents("view/").values()]
            have = f"views: {', '.join(sorted(views))}" if views else "there are no views yet"
            raise ViewNotFound(f"there is no view {name}; {have}")
        return found

    @property
    def sql(self) -> str:
        """The query that defines the view."""
        return str(self._document()["sql"])

    @property
    def plan(self) -> Node:
        """How the view is maintained."""
        return Node.from_json(self._document()["plan"])

    @property
    def status(self) -> str:
        """'new' until it is loaded, then 'live'."""
        return str(self._document()["status"])

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return int((self._store.document("epoch") or {"number": 0})["number"])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.plan.columns])

    def to_arrow(self) -> pa.Table:
        """All rows, in no particular order."""
        return read_together([self])[self.name]

    def rows_at(self, epoch: int) -> pa.Table:
        """All rows as of an epoch; raises `Overtaken` when newer ones have replaced them."""
        document = self._document()
        found = [self.schema.empty_table()]
        if document["status"] != "new":
            sink = _sink(document)
            for number in range(document["shards"]):
                shard = self._store.shard(f"{document['state']}/view", number)
                found += sink.read(shard.values(), epoch)
        return pa.concat_tables(found)

    def scan(self) -> Iterator[Row]:
        """Rows as dicts, all of one epoch."""
        for batch in self.to_arrow().to_batches():
            yield from batch.to_pylist()

    def get(self, *key: Any) -> Row | None:
        """The row with that key (see `key`), or None."""
        document = self._document()
        columns = Node.from_json(document["plan"]).columns
        key_columns = tuple(c for c in columns if c.name in document["key"])
        if len(key_columns) in (0, len(columns)):
            raise UnsupportedSql(f"view {self.name} has no key to get a row by; use scan()")
        if document["status"] == "new":
            return None
        key = key[0] if len(key) == 1 and isinstance(key[0], tuple) else key
        wanted = TableSchema(self.name, key_columns, tuple(document["key"]))
        rows = keys_to_arrow(wanted, [key if len(key) > 1 else key[0]])
        sink = _sink(document)
        (encoded,) = sink.key_of(rows)
        while True:
            try:
                for number in range(document["shards"]):
                    shard = self._store.shard(f"{document['state']}/view", number)
                    if row := current(shard.get(encoded), self.epoch):
                        found: list[Row] = repeated(sink.decode([row])).to_pylist()
                        return found[0]
                return None
            except Overtaken:
                continue

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell the rows apart."""
        return tuple(self._document()["key"])

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)


def read_together(views: list[View]) -> dict[str, pa.Table]:
    """The rows of several views as of one epoch, by name."""
    while True:
        epoch = views[0].epoch if views else 0
        try:
            return {view.name: view.rows_at(epoch) for view in views}
        except Overtaken:
            continue


def _sink(document: dict[str, Any]) -> ViewSink:
    return ViewSink(Node.from_json(document["plan"]).columns, tuple(document["key"]))
