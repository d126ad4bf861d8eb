"""Views that are members of a family which Everview made of views that are alike.

Each reads as a view like any other, under its own name: its rows are those of the family that have
its values, without the columns of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from everview import following
from everview.catalog import NAMED, VIEWS, Like, NamedMember, ViewRecord
from everview.catalog.views import LIVE, NEW
from everview.errors import NotLoaded
from everview.explain.plan import Document
from everview.explain.views import positions_of
from everview.following import Feed
from everview.intake import keys_to_arrow
from everview.member import Member
from everview.plan.expressions import Apply, Lit, Ref, Tree, all_of, string
from everview.plan.nodes import Filter, Node, Order, Project
from everview.schema import Column, TableSchema, ViewKey, sql_name
from everview.stores.base import Reader, check_consumer
from everview.table import Table
from everview.view import View, check_start, in_order

Row = dict[str, Any]
Stored = int | str


def open_view(store: Reader, name: str) -> View:
    """The handle of a view, whether it is a member of a family or not. Raises `ViewNotFound`."""
    if isinstance(name, str):
        record = store.catalog.get(VIEWS[name])
        is_replaced = record is not None and record.is_loaded  # by a view that is no member
        if not is_replaced and store.catalog.get(NAMED[name]) is not None:
            return NamedView(store, name)
    return View(store, name)


def stored(value: Any) -> Stored:
    """A value of a parameter as a record has it."""
    return value if isinstance(value, int) else str(value)


def value_of(text: Stored, type_: pa.DataType) -> Any:
    """What `stored` gave for a value of that type."""
    if pa.types.is_decimal(type_):
        return Decimal(text)
    return date.fromisoformat(str(text)) if pa.types.is_date(type_) else text


class NamedView(View):
    """A view whose rows are those of a member of a family."""

    def __init__(self, store: Reader, name: str) -> None:
        self._store = store
        self.name = self._named(name).name

    def _named(self, name: str | None = None) -> NamedMember:
        name = self.name if name is None else name
        named = self._store.catalog.get(NAMED[name])
        if named is None:
            raise self._missing(name)
        return named

    def _record(self, name: str | None = None) -> ViewRecord:
        """The record of the family."""
        record = self._store.catalog.get(VIEWS[self._named(name).family])
        if record is None:
            raise self._missing(self.name)
        return record

    @property
    def _like(self) -> Like:
        like = self._record().like
        assert like is not None
        return like

    @property
    def _family(self) -> View:
        return View(self._store, self._record().name)

    @property
    def values_shown(self) -> tuple[Stored, ...] | None:
        """The values whose rows are its own now; None if it has no rows yet."""
        named, record = self._named(), self._record()
        positions = positions_of(self._store, record)
        has_come = positions.get(self._members_table, {}).get(0, 0) >= named.since
        return (named.values if has_come else named.before) if record.is_loaded else None

    @property
    def _member(self) -> Member | None:
        """What has its rows now; None if it has none yet."""
        values, record = self.values_shown, self._record()
        if values is None:
            return None
        types = [column.type for column in record.plan.columns[: len(values)]]
        return Member(self._family, list(map(value_of, values, types)), {})

    def _followable(self) -> Member:
        if (member := self._member) is None:
            raise NotLoaded(f"view {self.name} has no rows yet, so it has no changes to follow")
        return member

    @property
    def _own_columns(self) -> tuple[Column, ...]:
        record = self._record()
        return tuple(c for c in record.plan.columns if c.name not in record.parameters)

    @property
    def family(self) -> str | None:
        return self._record().name

    @property
    def sql(self) -> str:
        return self._named().query

    @property
    def plain_sql(self) -> str:
        return self._named().query

    @property
    def parameters(self) -> tuple[str, ...]:
        return ()

    @property
    def members(self) -> Table:
        raise self._no_members()

    def member(self, *values: Any, **named_values: Any) -> Member:
        raise self._no_members()

    @property
    def plan(self) -> Node:
        record = self._record()
        conditions: list[Tree] = []
        for name, value in zip(record.parameters, self._named().values, strict=True):
            type_ = record.plan.column(name).type
            conditions.append(Apply("({0} <=> {1})", (Ref(name), _literal(value, type_))))
        rows = Filter(record.plan.columns, record.plan, all_of(conditions))
        return Project(self._own_columns, rows, tuple(Ref(c.name) for c in self._own_columns))

    @property
    def tables(self) -> list[str]:
        return [table for table in self._record().tables if table != self._members_table]

    @property
    def named_tables(self) -> tuple[str, ...]:
        return tuple(table for table in self._record().widths if table != self._members_table)

    @property
    def _members_table(self) -> str:
        family = self._record().definition.family
        assert family is not None
        return family.members

    @property
    def status(self) -> str:
        status = super().status
        return NEW if status == LIVE and not self.is_loaded else status

    @property
    def is_loaded(self) -> bool:
        return self.values_shown is not None

    @property
    def order(self) -> tuple[Order, ...]:
        return self._like.order

    def explain(self, analyze: bool = False) -> Document:
        """How the family is maintained, with the values of this view."""
        record, named, like = self._record(), self._named(), self._like
        types = [record.plan.column(name).type for name in record.parameters]
        values = map(value_of, named.values, types)
        return super().explain(analyze) | {
            "view": self.name,
            "status": self.status,
            "query": self.sql,
            "key": list(self.key),
            "order": [str(by) for by in self.order],
            "values": dict(zip(record.parameters, map(str, values), strict=True)),
            "alike": {
                "members": len(Table(self._store, self._members_table)),
                "views": like.views,
                "apart": like.apart,
                "together": like.together,
            },
        }

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self._own_columns])

    def _rows(self, prefix: bytes = b"") -> pa.Table:
        member = self._member
        rows = self.schema.empty_table() if member is None else member.to_arrow()
        return in_order(rows, self.order)

    def _row(self, key: tuple[Any, ...]) -> Row | None:
        key_schema = self.key_schema
        if len(key) != len(key_schema.key):
            keys_to_arrow(key_schema, [key[0] if len(key) == 1 else key], nullable=True)
        member = self._member
        if member is None:
            return None
        values = dict(zip(key_schema.key, key, strict=True))
        return member.get(*(values[name] for name in member.key))

    @property
    def key(self) -> tuple[str, ...]:
        return self._like.key

    @property
    def key_schema(self) -> TableSchema:
        columns = self._columns_of_key(self._own_columns, self.key)
        return ViewKey(self.name, columns, self.key)

    def follow(
        self, start: Literal["snapshot", "now"] | int = "snapshot", every: float = 0.1
    ) -> Feed:
        check_start(start)
        self._followable()
        return super().follow(start, every)

    def changes(self, after: int | None = None) -> Iterator[pa.RecordBatch]:
        self._followable()
        self.check_followed()
        for batch in following.read_changes(self._followed, self.followed_name, after):
            yield from self.own_changes(pa.Table.from_batches([batch])).to_batches()

    def register(self, consumer: str, after: int | None = None) -> int:
        check_consumer(consumer)
        self._followable()
        return super().register(consumer, after)

    @property
    def followed_name(self) -> str:
        return self._record().name

    def follower_name(self, consumer: str) -> str:
        return f"{self.name}: {consumer}"

    @property
    def changes_schema(self) -> pa.Schema:
        names = [column.name for column in self._own_columns]
        whole = following.changes_schema(self.sink)
        return pa.schema([_without(field, names) for field in whole])

    def own_changes(self, changes: pa.Table) -> pa.Table:
        return _own_part(self._followable(), self.changes_schema, changes)


def _own_part(member: Member, schema: pa.Schema, changes: pa.Table) -> pa.Table:
    batches = []
    for batch in changes.to_batches():
        own = member.own_part(batch)
        columns = [
            _fields(column, field.type) if pa.types.is_struct(field.type) else column
            for column, field in zip(own.columns, schema, strict=True)
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return pa.Table.from_batches(batches, schema)


def _fields(images: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    """Rows with some of their columns."""
    arrays = [images.field(field.name) for field in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_), mask=images.is_null())


def _without(field: pa.Field[Any], names: list[str]) -> pa.Field[Any]:
    if not pa.types.is_struct(field.type):
        return field
    return field.with_type(pa.struct([own for own in field.type if own.name in names]))


def _literal(value: Stored, type_: pa.DataType) -> Lit:
    if pa.types.is_string(type_):
        return string(str(value))
    name = sql_name(type_)
    text = f"'{value}'" if pa.types.is_date(type_) else str(value)
    return Lit(f"CAST({text} AS {name})", name)
