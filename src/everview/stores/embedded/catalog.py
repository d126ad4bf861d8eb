"""The catalog: JSON documents in an LMDB environment of their own.

It has a document for each table (its definition), for each view (definition, plan and status), and
for what maintenance must remember, such as the committed epoch and the lease. `docs/reference/
formats.md` lists all of them.

Every operation looks its table up here. So when one process creates, drops or changes a table, the
next operation of every other process sees it. Documents that belong together change in one
transaction.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import lmdb

from everview.advice import how_to_read_view
from everview.errors import InUse, TableExists, TableNotFound, meant
from everview.schema import TableSchema
from everview.stores.embedded import lease, unsynced
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import LONGEST, Layout

DATABASES = ("documents",)
_TABLE, _NEXT, _OTHER = b"table/", b"next table", b"document/"

Glance = tuple[dict[str, dict[str, Any]], dict[str, Layout]]


class Catalog:
    """Reads and writes the documents; caches the layouts of tables that it has read."""

    def __init__(self, environment: Environment, directory: str) -> None:
        self.environment = environment
        self._directory = directory
        self._layouts: dict[bytes, tuple[bytes, Layout]] = {}
        self._texts: dict[str, tuple[bytes, dict[str, Any]]] = {}

    @property
    def _documents(self) -> lmdb._Database:
        return self.environment.dbs[0]

    def layout(self, table: str) -> Layout:
        """The layout of a table as it is defined now. Raises `TableNotFound`."""
        with self.environment.reading() as txn:
            return self._layout_in(txn, table)

    def _layout_in(self, txn: lmdb.Transaction, table: str) -> Layout:
        key = _document_key(table)
        document = self._get(txn, key)
        if document is None:
            raise self._missing(txn, table)
        known = self._layouts.get(key)
        if known is None or known[0] != document:
            known = self._layouts[key] = document, self._parse(document)
        return known[1]

    def tables(self) -> list[str]:
        with self.environment.reading() as txn:
            return sorted(schema.name for schema in self._all(txn))

    def create(self, schema: TableSchema, make: Callable[[Layout], None]) -> None:
        """Let `make` create the files of a table, then store its definition, in one transaction.

        Raises `TableExists` if a table or view has the name.
        """
        key = _document_key(schema.name)

        def define(txn: lmdb.Transaction) -> None:
            if txn.get(key, db=self._documents) is not None:
                raise TableExists(
                    f"table {schema.name} exists already; drop it first, "
                    "or use CREATE TABLE IF NOT EXISTS"
                )
            if self._document_in(txn, _view_key(schema.name)) is not None:
                raise TableExists(f"there is a view {schema.name}; a table needs a name of its own")
            number = int(txn.get(_NEXT, b"1", db=self._documents))
            directory = f"{number:06d}"
            make(self._layout_of(schema, directory))
            txn.put(_NEXT, b"%d" % (number + 1), db=self._documents)
            self._store(txn, key, {"directory": directory, "schema": schema.to_json()})

        self.environment.update(define)
        self.environment.sync()

    def change(self, table: str, change: Callable[[TableSchema], TableSchema]) -> None:
        """Apply `change` to the current definition of a table, in one transaction.

        Raises `TableNotFound`.
        """
        key = _document_key(table)

        def store(txn: lmdb.Transaction) -> None:
            found = self._get(txn, key)
            if found is None:
                raise self._missing(txn, table)
            document = json.loads(found)
            changed = change(TableSchema.from_json(document["schema"]))
            self._store(txn, key, document | {"schema": changed.to_json()})

        self.environment.update(store)
        self.environment.sync()

    def drop(self, table: str) -> None:
        """Delete the definition of a table, then its files and those of unfinished drops.

        Raises `TableNotFound`, and `InUse` if a view reads the table.
        """

        def forget(txn: lmdb.Transaction) -> set[str]:
            readers = self._readers(txn, table)
            if readers:
                raise InUse(
                    f"table {table} is read by view {', '.join(readers)}; drop the view first, "
                    f"with DROP VIEW {readers[0]}"
                )
            if not txn.delete(_document_key(table), db=self._documents):
                raise self._missing(txn, table)
            used = {json.loads(document)["directory"] for _, document in self._items_in(txn)}
            number = int(txn.get(_NEXT, db=self._documents))
            return {f"{older:06d}" for older in range(1, number)} - used

        unused = self.environment.update(forget)
        self.environment.sync()
        for name in unused:
            shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)

    def _readers(self, txn: lmdb.Transaction, table: str) -> list[str]:
        """The views that read a table, also through a definition that is not in place yet."""
        kinds = [self._documents_of(txn, kind) for kind in ("view/", "replacement/")]
        views = [view for kind in kinds for view in kind.values()]
        return [v["name"] for v in views if table.lower() in map(str.lower, v["tables"])]

    def document(self, name: str) -> dict[str, Any] | None:
        """The document of that name, or None. Callers must not change it in place.

        Definitions of tables are not found here; see `layout`.
        """
        with self.environment.reading() as txn:
            return self._document_in(txn, name)

    def _document_in(self, txn: lmdb.Transaction, name: str) -> dict[str, Any] | None:
        found = self._get(txn, _OTHER + _encoded(name))
        return None if found is None else self._parsed(name, found)

    def _parsed(self, name: str, text: bytes) -> dict[str, Any]:
        known = self._texts.get(name)
        if known is None or known[0] != text:
            known = self._texts[name] = text, json.loads(text)
        return known[1]

    def documents(self, prefix: str) -> dict[str, dict[str, Any]]:
        """Documents whose names begin with `prefix`, by name."""
        with self.environment.reading() as txn:
            return self._documents_of(txn, prefix)

    def _documents_of(self, txn: lmdb.Transaction, prefix: str) -> dict[str, dict[str, Any]]:
        start, found = _OTHER + prefix.encode(), {}
        cursor = txn.cursor(self._documents)
        alive = cursor.set_range(start)
        while alive and cursor.key().startswith(start):
            name = cursor.key()[len(_OTHER) :].decode()
            found[name] = self._parsed(name, cursor.value())
            alive = cursor.next()
        return found

    def glance(self, views: Iterable[str] | None, tables: Iterable[str] | None) -> Glance:
        """Read what a pin needs, at one moment: documents by name, and layouts by table.

        The documents are `epoch`, `unsynced` and those of the named views. A view that doesn't
        exist is left out; a table that doesn't exist raises `TableNotFound`. None means all views,
        or all tables.
        """
        with self.environment.reading() as txn:
            if views is None:
                documents = self._documents_of(txn, "view/")
            else:
                found = {name: self._document_in(txn, name) for name in map(_view_key, views)}
                documents = {name: view for name, view in found.items() if view is not None}
            for name in ("epoch", unsynced.DOCUMENT):
                if (found_too := self._document_in(txn, name)) is not None:
                    documents[name] = found_too
            if tables is None:
                tables = self._names_in(txn)
            return documents, {table.lower(): self._layout_in(txn, table) for table in tables}

    def store_documents(
        self, changes: Mapping[str, dict[str, Any] | None], token: int | None = None
    ) -> None:
        """Store documents, all in one transaction; None deletes one.

        With a token, raises `Superseded` and stores nothing if the lease has a newer token.
        """
        self.environment.update(lambda txn: self._store_in(txn, changes, token))

    def store_views(
        self,
        changes: Mapping[str, dict[str, Any] | None],
        token: int | None = None,
        created: str | None = None,
    ) -> None:
        """Store documents of views that were just planned, as `store_documents` does.

        Raises `TableNotFound` if a table that they read was dropped meanwhile. Raises `TableExists`
        if a table or view has the name `created`.
        """

        def store(txn: lmdb.Transaction) -> None:
            if created is not None:
                self._check_free(txn, created)
            for view in changes.values():
                for table in view["tables"] if view else ():
                    self._layout_in(txn, table)
            self._store_in(txn, changes, token)

        self.environment.update(store)

    def _check_free(self, txn: lmdb.Transaction, name: str) -> None:
        if self._get(txn, _document_key(name)) is not None:
            raise TableExists(f"there is a table {name}; a view needs a name of its own")
        if self._document_in(txn, _view_key(name)) is not None:
            raise TableExists(
                f"view {name} exists already; write CREATE OR REPLACE MATERIALIZED VIEW {name}, or "
                f"drop it first with DROP VIEW {name}"
            )

    def _store_in(
        self,
        txn: lmdb.Transaction,
        changes: Mapping[str, dict[str, Any] | None],
        token: int | None,
    ) -> None:
        if token is not None:
            found = txn.get(_OTHER + lease.DOCUMENT.encode(), db=self._documents)
            lease.check(token, (json.loads(found) if found else lease.FIRST)["token"])
        for name, document in changes.items():
            if document is None:
                txn.delete(_OTHER + name.encode(), db=self._documents)
            else:
                self._store(txn, _OTHER + name.encode(), document)

    def _store(self, txn: lmdb.Transaction, key: bytes, document: dict[str, Any]) -> None:
        txn.put(key, json.dumps(document, sort_keys=True).encode(), db=self._documents)

    def _get(self, txn: lmdb.Transaction, key: bytes) -> bytes | None:
        """The bytes stored under a key, or None; LMDB would fail on a key that is too long."""
        return txn.get(key, db=self._documents) if len(key) <= LONGEST else None

    def _parse(self, document: bytes) -> Layout:
        parsed = json.loads(document)
        return self._layout_of(TableSchema.from_json(parsed["schema"]), parsed["directory"])

    def _layout_of(self, schema: TableSchema, directory: str) -> Layout:
        now = partial(self.layout, schema.name)
        return Layout(schema, os.path.join(self._directory, directory), now)

    def _items_in(self, txn: lmdb.Transaction) -> Iterator[tuple[bytes, bytes]]:
        cursor = txn.cursor(self._documents)
        alive = cursor.set_range(_TABLE)
        while alive and cursor.key().startswith(_TABLE):
            yield cursor.item()
            alive = cursor.next()

    def _names_in(self, txn: lmdb.Transaction) -> list[str]:
        """The names of all tables, in lower case."""
        return [key[len(_TABLE) :].decode() for key, _ in self._items_in(txn)]

    def _all(self, txn: lmdb.Transaction) -> Iterator[TableSchema]:
        for _, document in self._items_in(txn):
            yield TableSchema.from_json(json.loads(document)["schema"])

    def _missing(self, txn: lmdb.Transaction, table: str) -> TableNotFound:
        if (view := self._document_in(txn, _view_key(table))) is not None:
            name = view["name"]
            return TableNotFound(
                f"{name} is a view, not a table; read it with {how_to_read_view(name)}, and write "
                f"to the tables that it reads: {', '.join(view['tables']) or 'it reads none'}"
            )
        names = sorted(schema.name for schema in self._all(txn))
        views = sorted(view["name"] for view in self._documents_of(txn, "view/").values())
        hint = meant(table, (*names, *views))
        have = f"tables: {', '.join(names)}" if names else "there are no tables yet"
        have += f"; views: {', '.join(views)}" if views else ""
        return TableNotFound(f"there is no table {table}; {hint}{have}")


def _view_key(view: str) -> str:
    return f"view/{view.lower()}"


def _document_key(table: str) -> bytes:
    return _TABLE + _encoded(table.lower())


def _encoded(name: str) -> bytes:
    """The bytes of a name. A user may look for a name that is not valid Unicode; none is stored."""
    return name.encode("utf-8", "surrogatepass")
