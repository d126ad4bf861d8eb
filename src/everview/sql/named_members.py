"""Views that are members of a family which Everview made: how they are stored, and dropped.

Members have a row each in the family's table, and views a record each in the catalog, which names
the values. The row is put first: what is left of a crash is a member that no view has, and costs
little. Whoever drops views deletes such rows; whoever creates views looks whether their rows are
still there, and puts them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from everview.advice import how_to_maintain
from everview.catalog import (
    ARRIVALS,
    NAMED,
    VIEWS,
    Arrivals,
    Key,
    NamedMember,
    Record,
    ViewRecord,
)
from everview.errors import Conflict, TableNotFound
from everview.maintain.views import forget_views
from everview.named import NamedView, stored, value_of
from everview.results.result import Result
from everview.schema import TableSchema
from everview.sql.context import Context
from everview.sql.create_view import CreateView
from everview.sql.lifting import Value
from everview.sql.planning import create, exists_already, is_view
from everview.table import Table


@dataclass(frozen=True)
class Member:
    """A view that is to become a member of a family."""

    creation: CreateView
    values: tuple[Value, ...]
    family: ViewRecord

    @property
    def table(self) -> str:
        """The table of the family's members."""
        assert self.family.hidden_table is not None
        return self.family.hidden_table


def rows_of(members: TableSchema, rows: Sequence[Sequence[Value]]) -> pa.Table:
    """Rows of the table of members."""
    columns = zip(*dict.fromkeys(map(tuple, rows)), strict=True)
    arrays = [
        pa.array(values, column.type)
        for values, column in zip(columns, members.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=members.arrow)


def written(context: Context, members: Sequence[Member]) -> Iterator[Result]:
    """Create views that are members of families, in one step of the catalog."""
    catalog = context.store.catalog
    while members and not _write(context, members):
        for place, member in enumerate(members):
            if is_view(context, member.creation.name) and not member.creation.replaces:
                yield from written(context, members[:place])
                raise exists_already(member.creation.name)
        is_family = [catalog.get(VIEWS[member.family.name]) is not None for member in members]
        if not all(is_family) or any(
            catalog.get(VIEWS[member.creation.name]) for member in members
        ):
            yield from (create(context, member.creation) for member in members)
            return
    for member in members:
        tables = [table for table in member.family.tables if table != member.table]
        yield Result(
            message=f"view {member.creation.name} created over {', '.join(tables)}; "
            f"{how_to_maintain()} loads it"
        )


def _write(context: Context, members: Sequence[Member]) -> bool:
    """False if others changed these views or families meanwhile."""
    catalog = context.store.catalog
    by_family: dict[str, list[Member]] = {}
    for member in members:
        by_family.setdefault(member.family.name, []).append(member)
    changes: dict[Key[Any], Record | None] = {}
    expected: dict[Key[Any], Record | None] = {}
    for family, its_members in by_family.items():
        arrivals = catalog.get(ARRIVALS[family])
        if arrivals is None:
            return False
        expected[ARRIVALS[family]] = arrivals
        changes[ARRIVALS[family]] = Arrivals(arrivals.number + 1)
        try:
            since = _put(context, its_members)
        except TableNotFound:  # the family was dropped
            return False
        for member in its_members:
            key = NAMED[member.creation.name]
            old = catalog.get(key)
            if old is not None and not member.creation.replaces:
                return False
            expected |= {key: old, VIEWS[member.creation.name]: None}
            changes[key] = _record(context, member, old, since)
    names = [member.creation.name for member in members]
    try:
        catalog.write(changes, expected=expected, tables=dict.fromkeys(names, False))
    except Conflict:
        return False
    for its_members in by_family.values():
        while not _are_there(context, its_members):
            since = _put(context, its_members)
            keys = [NAMED[member.creation.name] for member in its_members]
            named = {key: one for key in keys if (one := catalog.get(key)) is not None}
            catalog.write({key: replace(one, since=since) for key, one in named.items()})
    return True


def _record(context: Context, member: Member, old: NamedMember | None, since: int) -> NamedMember:
    """The record of a view, which may take the place of another member."""
    name, query = member.creation.name, member.creation.definition.query
    values = tuple(map(stored, member.values))
    if old is None:
        return NamedMember(name, query, member.family.name, values, since)
    before = NamedView(context.store, name).values_shown
    return NamedMember(old.name, query, member.family.name, values, since, before)


def _put(context: Context, members: Sequence[Member]) -> int:
    """Put the rows of new members of one family; returns a position of the log that has them."""
    store, table = context.store, members[0].table
    store.put(table, rows_of(store.describe(table), [member.values for member in members]))
    return store.log(table)[0].last


def _are_there(context: Context, members: Sequence[Member]) -> bool:
    """Whether the rows of members of one family are still there: when a view is dropped, others
    that come meanwhile with the same values may lose theirs."""
    store, table = context.store, members[0].table
    schema = store.describe(table)
    keys = rows_of(schema, [member.values for member in members])
    there, _ = store.get(table, keys, schema.key[:1])
    return len(there) == len(keys)


def drop_member(context: Context, name: str, token: int) -> None:
    """Delete a view that is a member of a family, and the family with its last one; nothing if the
    view is no member."""
    store, catalog, key = context.store, context.store.catalog, NAMED[name]
    while (named := catalog.get(key)) is not None:
        family = named.family
        arrivals = catalog.get(ARRIVALS[family])
        if any(one.family == family for other, one in catalog.all(NAMED).items() if other != key):
            catalog.write({key: None}, token)
            _delete_rows_of_none(context, family)
            return
        record = catalog.get(VIEWS[family])
        gone: dict[Key[Any], Record | None] = dict.fromkeys([key, ARRIVALS[family]])
        try:
            forget_views(store, [family], token, gone, {ARRIVALS[family]: arrivals})
        except Conflict:
            continue
        if record is not None and record.hidden_table:
            store.drop_table(record.hidden_table)
        return


def _delete_rows_of_none(context: Context, family: str) -> None:
    """Delete the rows of a family's members that no view has. A view that comes meanwhile puts its
    row again, or has it put here."""
    store, catalog = context.store, context.store.catalog
    record = catalog.get(VIEWS[family])
    if record is None or (table := record.hidden_table) is None:
        return
    rows = Table(store, table).to_arrow()
    types = [column.type for column in rows.schema]

    def used() -> set[tuple[Value, ...]]:
        views = [one for one in catalog.all(NAMED).values() if one.family == family]
        values = [some for one in views for some in (one.values, one.before) if some]
        return {tuple(map(value_of, some, types)) for some in values}

    keys = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    used_before = used()
    gone = [key for key in keys if key not in used_before]
    if not gone:
        return
    schema = store.describe(table)
    store.delete(table, rows_of(schema, gone))
    if back := used() & set(gone):
        store.put(table, rows_of(schema, list(back)))
