"""Reads a CREATE VIEW statement from its tokens; the text of the query stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from everview.batch import seconds_of
from everview.catalog import MAIN, Definition, title_of
from everview.catalog.views import LOAD_LAG
from everview.errors import InvalidSql
from everview.parsing import Statement
from everview.schema import Column
from everview.sql.definitions import columns_of
from everview.sql.groups import group_named

# the options of CREATE VIEW ... WITH; the first value of each is the default
OPTIONS = {
    "consistency": ("strong", "complete"),
    "refresh": ("incremental", "full"),
    # what the members of a view with parameters share, or this view with others that are alike
    "sharing": ("full", "selection", "none"),
}
_LAG = "load_lag"  # a time; the load gives way to views that are further behind
_GROUP = "group"  # a name; the view moves together with the views of this group
_FORM = (
    "write CREATE [OR REPLACE] MATERIALIZED VIEW [IF NOT EXISTS] name "
    "[(column, ...) or (parameter TYPE, ...)] [WITH (option = 'value')] AS SELECT ..."
)


def words_of(definition: Definition) -> frozenset[str]:
    """All words of a view's query, in small letters."""
    return _words_of(definition.query)


@lru_cache(1024)
def _words_of(query: str) -> frozenset[str]:
    return frozenset(token.text.lower() for token in Statement(query).tokens)


@dataclass(frozen=True)
class CreateView:
    name: str
    definition: Definition
    consistency: str
    load_lag: float
    replaces: bool
    lenient: bool
    parameters: tuple[Column, ...] = ()
    sharing: str = OPTIONS["sharing"][0]
    group: str | None = None  # None if it names none

    @classmethod
    def of_query(
        cls,
        name: str,
        query: str,
        parameters: tuple[Column, ...] = (),
        group: str | None = None,
    ) -> CreateView:
        """What `CREATE MATERIALIZED VIEW name AS query` says, in a group."""
        strong, sharing = OPTIONS["consistency"][0], OPTIONS["sharing"][0]
        definition = Definition(query)
        return cls(name, definition, strong, LOAD_LAG, False, False, parameters, sharing, group)

    @property
    def has_own_options(self) -> bool:
        """Whether it says more than a name, a query and a group, and whether to replace a view."""
        plain = self.of_query(self.name, self.definition.query, group=self.group)
        return replace(self, replaces=False, lenient=False) != plain

    @classmethod
    def of(cls, statement: Statement) -> CreateView:
        tokens = statement.tokens
        words = [token.text.upper() for token in tokens]
        replaces = words[1:3] == ["OR", "REPLACE"]
        at = 3 if replaces else 1
        at += words[at : at + 1] == ["MATERIALIZED"]
        begins = words[at : at + 1] == ["VIEW"]
        lenient = words[at + 1 : at + 4] == ["IF", "NOT", "EXISTS"]
        at += 4 if lenient else 1
        columns, parameters, stop = _columns(statement, at + 1)
        options, stop = _options(statement, stop)
        if not begins or len(tokens) < stop + 2 or words[stop] != "AS":
            raise InvalidSql(_FORM)
        if replaces and lenient:
            raise InvalidSql(f"OR REPLACE and IF NOT EXISTS exclude each other; {_FORM}")
        return cls(
            tokens[at].text,
            Definition(statement.cut(stop + 1), columns, options["refresh"] == "full"),
            options["consistency"],
            seconds_of(options[_LAG]) or LOAD_LAG,
            replaces,
            lenient,
            parameters,
            options["sharing"],
            group_named(options[_GROUP]) if _GROUP in options else None,
        )


def _columns(statement: Statement, at: int) -> tuple[tuple[str, ...], tuple[Column, ...], int]:
    """The names in (column, ...), or the parameters in (parameter TYPE, ...), and where the
    statement goes on."""
    pieces, end = _listed(statement, at)
    have_types = {stop - start > 1 for start, stop in pieces}
    if have_types == {True}:
        return (), columns_of(statement.cut(at, end)), end
    for start, stop in pieces:
        if stop - start != 1:
            raise InvalidSql(
                f"{statement.cut(start, stop) or 'nothing'} can't name a column of the view; "
                "write names only, (a, b), since the types come from the query; or, if these are "
                f"parameters of the view, write a type for each, (a INT, b DATE). {_FORM}"
            )
    return tuple(statement.tokens[start].text for start, _ in pieces), (), end


def _options(statement: Statement, at: int) -> tuple[dict[str, str], int]:
    """The options in WITH (name = 'value', ...), and where the statement goes on."""
    options = {name: values[0] for name, values in OPTIONS.items()} | {_LAG: f"{LOAD_LAG} s"}
    words = [token.text for token in statement.tokens]
    if [word.upper() for word in words[at : at + 1]] != ["WITH"]:
        return options, at
    pieces, end = _listed(statement, at + 1)
    for start, stop in pieces or [(at, at)]:
        name, equals, value = (*words[start:stop], "", "", "")[:3]
        if stop - start != 3 or equals != "=" or not _is_option(name.lower(), value):
            listed = ", ".join(f"{n} = {_either(values)}" for n, values in OPTIONS.items())
            raise InvalidSql(
                f"a view has no option {statement.cut(start, stop) or '()'}; write WITH "
                f"({listed}, {_LAG} = '{LOAD_LAG:g} s', {_GROUP} = '{title_of(MAIN)}'); the first "
                "of each is the default"
            )
        options[name.lower()] = value
    return options, end


def _either(values: Sequence[str]) -> str:
    return " or ".join(f"'{value}'" for value in values)


def _is_option(name: str, value: str) -> bool:
    if name == _GROUP:
        return True
    return seconds_of(value) is not None if name == _LAG else value in OPTIONS.get(name, ())


def _listed(statement: Statement, at: int) -> tuple[list[tuple[int, int]], int]:
    """The token ranges of the items in parentheses, and the position after them; without
    parentheses, the same position."""
    words = [token.text for token in statement.tokens]
    if words[at : at + 1] != ["("] or ")" not in words[at:]:
        return [], at
    end = statement.after_group(at)
    return statement.pieces(at + 1, end - 1), end
