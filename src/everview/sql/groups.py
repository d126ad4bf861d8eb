"""The group of a new view: the one that it names, or that of the views which it reads.

Views that read each other are in one group, so that all of them show the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from everview.catalog import MAIN, ViewRecord, title_of
from everview.errors import InvalidSql, UnsupportedSql
from everview.intake.explain import short_repr

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def group_named(name: str) -> str:
    """A group as records have it, by the name that users write, in any case."""
    group = name.lower()
    if _NAME.fullmatch(group) is None:
        raise InvalidSql(
            f"{short_repr(name)} can't be the name of a group; use up to 63 letters, digits and _, "
            "the first no digit, as in WITH (group = 'hourly')"
        )
    return MAIN if group == title_of(MAIN) else group


def group_of(
    name: str, stated: str | None, old: ViewRecord | None, over: Mapping[str, ViewRecord]
) -> str:
    """The group of a view that takes the place of an `old` one, if any, and reads views, by their
    names. `stated` is the group that its statement names, None if it names none."""
    if old is not None:
        _check_stays(name, stated, old)
        stated = old.group
    for view, record in over.items():
        if stated is not None and record.group != stated:
            raise _of_another(name, stated, view, record.group)
    groups = {record.group: view for view, record in over.items()}
    if len(groups) > 1:
        raise _of_several(name, groups)
    return next(iter(groups), stated or MAIN)


def _check_stays(name: str, stated: str | None, old: ViewRecord) -> None:
    if stated is not None and stated != old.group:
        now, then = title_of(old.group), title_of(stated)
        raise UnsupportedSql(
            f"view {name} is in group {now}, and CREATE OR REPLACE does not move it to group "
            f"{then}; leave the option out, write WITH (group = '{now}'), or drop the view first, "
            f"with DROP VIEW {name}"
        )


def _of_another(name: str, group: str, view: str, other: str) -> UnsupportedSql:
    own, its = title_of(group), title_of(other)
    return UnsupportedSql(
        f"view {name} in group {own} can't read view {view} of group {its}, which shows other "
        f"moments; write WITH (group = '{its}') for {name}, or create {view} in group {own}"
    )


def _of_several(name: str, groups: Mapping[str, str]) -> UnsupportedSql:
    (one, first), (other, second), *_ = sorted(groups.items())
    one, other = title_of(one), title_of(other)
    return UnsupportedSql(
        f"view {name} can't read both view {first} of group {one} and view {second} of group "
        f"{other}, which show different moments; create {second} in group {one}, with WITH (group "
        f"= '{one}'), or {first} in group {other}"
    )
