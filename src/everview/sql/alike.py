"""Views that are alike, that is differ in constants only, are maintained together by themselves.

The second view of a kind, or a later one, makes a family: a view with parameters in the place of
the constants, which users don't see. From then on a CREATE of that kind is a row of the family's
members and a record of the catalog: nothing is planned and nothing is loaded. Any number of such
statements in a row are one step of the catalog. Views of different groups are never together.

A family is made if it is the same query for sure, fails for no row that its members leave out,
needs no plan that suits few members only, and is expected to take less time than its views apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa

from everview.catalog import (
    ARRIVALS,
    MAIN,
    NAMED,
    VIEWS,
    Arrivals,
    Key,
    Like,
    Record,
    ViewRecord,
)
from everview.catalog.views import STOPPED
from everview.errors import EverviewError, SqlError, TableExists
from everview.estimate.costs import constants_of, cost_of_view, rates_of
from everview.maintain.views import of_group
from everview.parsing import Statement
from everview.plan.cost import estimated
from everview.plan.expressions import is_sure
from everview.plan.members import members_of
from everview.plan.nodes import FirstByMember, Join, Node, TopK, TopKByGroup
from everview.plan.nodes.base import INCREMENTAL
from everview.results.result import Result
from everview.sql.context import Context
from everview.sql.create_view import CreateView
from everview.sql.families import as_family, members_made
from everview.sql.lifting import Lifted, lifted
from everview.sql.named_members import Member, rows_of, written
from everview.sql.planning import (
    check_name,
    create,
    define,
    is_view,
    store_views,
)

_PREFIX = "everview_family_"
_Kind = tuple[str, str]  # views that are alike: the tokens of their query, and their group


class _Apart(Exception):
    """The views are better maintained apart."""


def create_views(context: Context, statements: Sequence[Statement]) -> Iterator[Result]:
    """Run CREATE VIEW statements, one after the other, and members of families that follow each
    other in one step. If a statement fails, those before it have their effect."""
    creations: list[CreateView] = []
    failure: EverviewError | None = None
    for statement in statements:
        try:
            creation = as_family(context, CreateView.of(statement))
            check_name(creation.name)
        except EverviewError as error:
            failure = error
            break
        creations.append(creation)
    families = _Families(context, creations)
    members: dict[str, Member] = {}  # by name, those that are not written yet
    for creation in creations:
        name = creation.name.lower()
        try:
            member = None if name in members else families.member(creation)
        except EverviewError:
            yield from written(context, list(members.values()))
            raise
        if member is not None:
            members[name] = member
            continue
        yield from written(context, list(members.values()))
        members = {}
        yield create(context, creation)
    yield from written(context, list(members.values()))
    if failure is not None:
        raise failure


def _lifted(creation: CreateView) -> Lifted | None:
    """A CREATE with parameters for its constants; None if it says more than a query."""
    return None if creation.has_own_options else lifted(creation.definition.query)


class _Families:
    """The families of the views that a script creates: those that are there, and new ones."""

    def __init__(self, context: Context, creations: Sequence[CreateView]) -> None:
        self._context = context
        self._alike: dict[_Kind, list[Lifted]] = {}
        for creation in creations:
            if lift := _lifted(creation):
                kind = lift.tokens, self._group_of(creation)
                self._alike.setdefault(kind, []).append(lift)
        self._families: dict[_Kind, ViewRecord | None] = {}

    def _group_of(self, creation: CreateView) -> str:
        """The group of a view that reads tables only; it stays where it was."""
        if creation.group is not None:
            return creation.group
        catalog = self._context.store.catalog
        named = catalog.get(NAMED[creation.name])
        family = None if named is None else catalog.get(VIEWS[named.family])
        return MAIN if family is None else family.group

    def member(self, creation: CreateView) -> Member | None:
        """What a view is in its family; None if it is to be maintained apart. Raises what planning
        the view raises."""
        lift = _lifted(creation)
        if lift is None:
            return None
        catalog = self._context.store.catalog
        named = catalog.get(NAMED[creation.name])
        if catalog.get(VIEWS[creation.name]) or (named and not creation.replaces):
            return None
        kind = lift.tokens, self._group_of(creation)
        if kind not in self._families:
            self._families[kind] = self._known(kind) or self._new(creation, lift, kind)
        family = self._families[kind]
        if (
            family is None
            or family.status == STOPPED
            or (named is not None and named.family != family.name)
        ):
            return None
        return Member(creation, lift.values, family)

    def _known(self, kind: _Kind) -> ViewRecord | None:
        """The family of such views, if there is one."""
        for view in self._context.store.catalog.all(VIEWS).values():
            if view.like is not None and (view.like.tokens, view.group) == kind:
                return view
        return None

    def _new(self, creation: CreateView, lift: Lifted, kind: _Kind) -> ViewRecord | None:
        """A family for such views; None if they are better maintained apart. That is asked for the
        second, the fourth, the eighth view, and so on, of those that are not equal: equal ones
        share all that they have."""
        new = self._alike[kind]
        number = len({one.values for one in (*new, *self._others(kind))})
        is_asked = len(new) > 1 or number & (number - 1) == 0
        if number < 2 or not is_asked:
            return None
        own = define(self._context, creation)
        if own.is_open or own.views or not own.tables:
            return None
        for place in count(1):
            name = f"{_PREFIX}{place}"
            if is_view(self._context, name):
                continue
            try:
                return self._made(name, own, lift, new, number)
            except TableExists:  # another process made one of that name
                if (known := self._known(kind)) is not None:
                    return known
            except (_Apart, SqlError):
                return None
        raise AssertionError

    def _others(self, kind: _Kind) -> list[Lifted]:
        """The views of a kind that are maintained apart."""
        tokens, group = kind
        views = of_group(self._context.store.catalog.all(VIEWS).values(), group)
        queries = [view.definition.query for view in views if view.definition.family is None]
        lifts = [other for query in queries if (other := lifted(query))]
        return [other for other in lifts if other.tokens == tokens]

    def _made(
        self, name: str, own: ViewRecord, lift: Lifted, new: Sequence[Lifted], number: int
    ) -> ViewRecord:
        """A new family with the members that come first. Raises `_Apart`, and what planning it
        raises; then there is none."""
        context, store = self._context, self._context.store
        query = CreateView.of_query(name, lift.text, lift.parameters, own.group)
        creation = as_family(context, query)
        with members_made(context, creation):
            family = creation.definition.family
            assert family is not None
            rows = [one.values for one in new]
            store.put(family.members, rows_of(store.describe(family.members), rows))
            view = define(context, creation)
            _check_same(view, own, lift)
            apart, together = _seconds(context, own), _seconds(context, view)
            if number * apart.epoch <= together.epoch or number * apart.load < together.load:
                raise _Apart
            seconds = number * apart.epoch, together.epoch
            like = Like(lift.tokens, own.key, own.order, own.name, number, *seconds)
            definition = replace(view.definition, family=replace(family, like=like))
            view = replace(view, definition=definition)
            changes: dict[Key[Any], Record | None] = {VIEWS[name]: view, ARRIVALS[name]: Arrivals()}
            store_views(store, changes, None, created=name)
        return view


def _check_same(family: ViewRecord, own: ViewRecord, lift: Lifted) -> None:
    """Raises `_Apart` unless the rows of members are those of such views, for whatever values, by a
    plan that suits any number of them."""
    columns = [c for c in family.plan.columns if c.name not in family.parameters]
    own_columns = own.plan.columns
    if [(c.name, c.type) for c in columns] != [(c.name, c.type) for c in own_columns]:
        raise _Apart
    if set(family.key) - set(family.parameters) != set(own.key) or family.is_open:
        raise _Apart
    for node in family.plan.walk():
        compares_all = isinstance(node, Join) and not node.left_keys
        may_tie = isinstance(node, TopK | TopKByGroup | FirstByMember)
        if (
            compares_all
            or may_tie
            or node.maintenance() != INCREMENTAL
            or not _is_sure(node, family, lift)
        ):
            raise _Apart


def _is_sure(node: Node, family: ViewRecord, lift: Lifted) -> bool:
    """Whether the expressions of a node fail for no row: other views fail alone then."""
    assert family.definition.family is not None
    members = family.definition.family.members
    texts = set[str]()
    for below in node.inputs():
        parameters = members_of(below, members) or {}
        texts |= {
            column.name
            for column in below.columns
            if pa.types.is_string(column.type) and parameters.get(column.name) not in lift.days
        }
    return all(is_sure(tree, texts) for tree in node.trees())


@dataclass(frozen=True)
class _Seconds:
    """That a load takes, and 1,000 changes in an epoch."""

    load: float
    epoch: float


def _seconds(context: Context, view: ViewRecord) -> _Seconds:
    """The expected times of a view, without changes of members."""
    store, engines = context.store, context.engines
    cost = cost_of_view(store, engines.planner, view)
    constants = constants_of(store, engines.name)
    document = estimated(cost, constants, rates_of(store, view.tables), ())
    family = view.definition.family
    tables = [
        of_table
        for table, of_table in document["per_1000_changes"].items()
        if family is None or table != family.members
    ]
    share = sum(table["share"] for table in tables)
    changes = sum(table["share"] * table["seconds"] for table in tables) / share if share else 0.0
    return _Seconds(document["load_seconds"], document["epoch_seconds"] - constants.epoch + changes)
