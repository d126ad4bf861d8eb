"""The catalog: definitions of tables, and the records of views and epochs, as JSON documents.

They lie in an LMDB environment of their own. Every operation looks its table up here, so that what
one process creates, drops or attaches is seen by the next operation of every other.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import lmdb

from everview.advice import how_to_read_view
from everview.catalog import (
    EPOCH,
    EPOCHS,
    LEASE,
    NAMED,
    REPLACEMENTS,
    UNSYNCED,
    VIEWS,
    Key,
    Kind,
    LeaseRecord,
    Record,
)
from everview.errors import Conflict, InUse, ReadOnly, TableExists, TableNotFound, suggestion
from everview.schema import TableSchema
from everview.stores.base import Catalog, RecordChanges
from everview.stores.embedded.environment import Environment
from everview.stores.embedded.layout import LONGEST, Layout
from everview.stores.embedded.tokens import check_token

DATABASES = ("documents",)
_TABLE, _NEXT, _OTHER = b"table/", b"next table", b"document/"
_WRITES = b"writes of "  # and the prefix of a kind of records: how often some were written

R = TypeVar("R", bound=Record)
Records = dict[Key[Any], Any]
Glance = tuple[Records, dict[str, Layout]]


class EmbeddedCatalog(Catalog):
    """Definitions of tables, and records. It parses a document again only if that has changed, and
    looks at the documents of a kind only if one of them was written."""

    def __init__(self, environment: Environment, home: str, readonly: bool) -> None:
        self.environment = environment
        self._home = home
        self._directory = os.path.join(home, "tables")
        self._readonly = readonly
        self._layouts: dict[bytes, tuple[bytes, Layout]] = {}
        self._records: dict[str, tuple[bytes, Any]] = {}
        self._kinds: dict[str, tuple[bytes, dict[Key[Any], Any]]] = {}

    @property
    def to_write(self) -> EmbeddedCatalog:
        """The catalog, if it may be changed."""
        if self._readonly:
            raise ReadOnly(f"{self._home} was opened with readonly=True; open it without to write")
        return self

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
        cached = self._layouts.get(key)
        if cached is None or cached[0] != document:
            cached = self._layouts[key] = document, self._parse(document)
        return cached[1]

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
            if self._view_name_in(txn, schema.name) is not None:
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
            text = self._get(txn, key)
            if text is None:
                raise self._missing(txn, table)
            document = json.loads(text)
            schema = change(TableSchema.from_json(document["schema"]))
            self._store(txn, key, document | {"schema": schema.to_json()})

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
            directories = {json.loads(document)["directory"] for _, document in self._items_in(txn)}
            number = int(txn.get(_NEXT, db=self._documents))
            return {f"{earlier:06d}" for earlier in range(1, number)} - directories

        unused = self.environment.update(forget)
        self.environment.sync()
        for name in unused:
            shutil.rmtree(os.path.join(self._directory, name), ignore_errors=True)

    def _readers(self, txn: lmdb.Transaction, table: str) -> list[str]:
        """The views that read a table, also through a definition that is not in place yet."""
        views = [*self._records_of(txn, VIEWS).values()]
        views += [replacement.view for replacement in self._records_of(txn, REPLACEMENTS).values()]
        readers = [view for view in views if table.lower() in map(str.lower, view.tables)]
        families = {view.name for view in readers if view.like is not None}
        named = self._records_of(txn, NAMED).values() if families else ()
        seen = [view.name for view in readers if view.like is None]
        return seen + [view.name for view in named if view.family in families]

    def _view_name_in(self, txn: lmdb.Transaction, name: str) -> str | None:
        """The name of a view as it was created; None if there is no such view."""
        view = self._record_in(txn, VIEWS[name]) or self._record_in(txn, NAMED[name])
        return None if view is None else view.name

    def get(self, key: Key[R]) -> R | None:
        with self.environment.reading() as txn:
            return self._record_in(txn, key)

    def _record_in(self, txn: lmdb.Transaction, key: Key[R]) -> R | None:
        text = self._get(txn, _OTHER + _encode(key.text))
        return None if text is None else self._parse_record(key, text)

    def _parse_record(self, key: Key[R], text: bytes) -> R:
        cached = self._records.get(key.text)
        if cached is None or cached[0] != text:
            cached = self._records[key.text] = text, key.kind.parse(json.loads(text))
        record: R = cached[1]
        return record

    def all(self, kind: Kind[R]) -> dict[Key[R], R]:
        with self.environment.reading() as txn:
            return self._records_of(txn, kind)

    def _records_of(self, txn: lmdb.Transaction, kind: Kind[R]) -> dict[Key[R], R]:
        writes = txn.get(_WRITES + kind.prefix.encode(), db=self._documents)
        cached = self._kinds.get(kind.prefix)
        if writes is not None and cached is not None and cached[0] == writes:
            return dict(cached[1])
        prefix, records = _OTHER + kind.prefix.encode(), {}
        cursor = txn.cursor(self._documents)
        has_item = cursor.set_range(prefix)
        while has_item and cursor.key().startswith(prefix):
            key = Key(cursor.key()[len(_OTHER) :].decode(), kind)
            records[key] = self._parse_record(key, cursor.value())
            has_item = cursor.next()
        if writes is not None:
            self._kinds[kind.prefix] = writes, dict(records)
        return records

    def glance(self, views: Sequence[str] | None, tables: Sequence[str] | None) -> Glance:
        """Records and layouts of tables as of one moment: the records of epochs, of what is
        unsynced, and of those of the views that exist, with the families of which some are members.
        None stands for all views or tables. Without tables, of the groups other than the main one
        there are only the epochs of those that these views are in."""
        with self.environment.reading() as txn:
            records: Records = {}
            if views is None:
                records |= self._records_of(txn, VIEWS)
                records |= self._records_of(txn, NAMED)
            keys: list[Key[Any]] = [EPOCH, UNSYNCED, *(VIEWS[view] for view in views or ())]
            for view in views or ():
                if (named := self._record_in(txn, NAMED[view])) is not None:
                    keys += [NAMED[view], VIEWS[named.family]]
            for key in keys:
                if (record := self._record_in(txn, key)) is not None:
                    records[key] = record
            is_of_views = views is not None and tables is not None and not tables
            epochs = self._epochs_of(txn, records) if is_of_views else self._records_of(txn, EPOCHS)
            records |= epochs
            if tables is None:
                tables = self._names_in(txn)
            return records, {table.lower(): self._layout_in(txn, table) for table in tables}

    def _epochs_of(self, txn: lmdb.Transaction, records: Records) -> Records:
        """The epochs of the groups other than the main one that some views are in."""
        views = [record for key, record in records.items() if key.kind == VIEWS]
        keys = {EPOCHS[view.group] for view in views if view.group}
        epochs = {key: self._record_in(txn, key) for key in keys}
        return {key: epoch for key, epoch in epochs.items() if epoch is not None}

    def write(
        self,
        changes: RecordChanges,
        token: int | None = None,
        *,
        expected: RecordChanges | None = None,
        tables: Mapping[str, bool] | None = None,
    ) -> None:
        def apply(txn: lmdb.Transaction) -> None:
            if token is not None:
                check_token(token, (self._record_in(txn, LEASE) or LeaseRecord()).token)
            for table, exists in (tables or {}).items():
                self._check_table(txn, table, exists)
            for key, record in (expected or {}).items():
                if self._record_in(txn, key) != record:
                    raise Conflict(f"{key.text} changed meanwhile; look again, and try again")
            for key, record in changes.items():
                if record is None:
                    txn.delete(_OTHER + key.text.encode(), db=self._documents)
                else:
                    self._store(txn, _OTHER + key.text.encode(), record.to_document())
            for prefix in {key.kind.prefix for key in changes}:
                self._count_write(txn, _WRITES + prefix.encode())

        self.to_write.environment.update(apply)

    def _count_write(self, txn: lmdb.Transaction, key: bytes) -> None:
        number = int(txn.get(key, b"0", db=self._documents)) + 1
        txn.put(key, b"%d" % number, db=self._documents)

    def _check_table(self, txn: lmdb.Transaction, table: str, exists: bool) -> None:
        if exists:
            self._layout_in(txn, table)
        elif self._get(txn, _document_key(table)) is not None:
            raise TableExists(f"there is a table {table}; a view needs a name of its own")

    def _store(self, txn: lmdb.Transaction, key: bytes, document: dict[str, Any]) -> None:
        txn.put(key, json.dumps(document, sort_keys=True).encode(), db=self._documents)

    def _get(self, txn: lmdb.Transaction, key: bytes) -> bytes | None:
        """The bytes stored under a key, or None; LMDB would fail on a key that is too long."""
        return txn.get(key, db=self._documents) if len(key) <= LONGEST else None

    def _parse(self, document: bytes) -> Layout:
        fields = json.loads(document)
        return self._layout_of(TableSchema.from_json(fields["schema"]), fields["directory"])

    def _layout_of(self, schema: TableSchema, directory: str) -> Layout:
        now = partial(self.layout, schema.name)
        return Layout(schema, os.path.join(self._directory, directory), now)

    def _items_in(self, txn: lmdb.Transaction) -> Iterator[tuple[bytes, bytes]]:
        cursor = txn.cursor(self._documents)
        has_item = cursor.set_range(_TABLE)
        while has_item and cursor.key().startswith(_TABLE):
            yield cursor.item()
            has_item = cursor.next()

    def _names_in(self, txn: lmdb.Transaction) -> list[str]:
        """The names of all tables, in lower case."""
        return [key[len(_TABLE) :].decode() for key, _ in self._items_in(txn)]

    def _all(self, txn: lmdb.Transaction) -> Iterator[TableSchema]:
        for _, document in self._items_in(txn):
            yield TableSchema.from_json(json.loads(document)["schema"])

    def _missing(self, txn: lmdb.Transaction, table: str) -> TableNotFound:
        named = self._record_in(txn, NAMED[table])
        view = self._record_in(txn, VIEWS[table if named is None else named.family])
        all_views = self._records_of(txn, VIEWS).values()
        hidden = {one.hidden_table for one in all_views}
        if view is not None:
            name = view.name if named is None else named.name
            tables = [read for read in view.tables if read not in hidden]
            return TableNotFound(
                f"{name} is a view, not a table; read it with {how_to_read_view(name)}, and write "
                f"to the tables that it reads: {', '.join(tables) or 'it reads none'}"
            )
        names = sorted(schema.name for schema in self._all(txn) if schema.name not in hidden)
        views = sorted(one.name for one in all_views if one.like is None)
        hint = suggestion(table, (*names, *views))
        existing = f"tables: {', '.join(names)}" if names else "there are no tables yet"
        existing += f"; views: {', '.join(views)}" if views else ""
        return TableNotFound(f"there is no table {table}; {hint}{existing}")


def _document_key(table: str) -> bytes:
    return _TABLE + _encode(table.lower())


def _encode(name: str) -> bytes:
    """The bytes of a name. A user may look for a name that is not valid Unicode; none is stored."""
    return name.encode("utf-8", "surrogatepass")
