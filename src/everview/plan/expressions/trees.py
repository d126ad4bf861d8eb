"""Expressions as small frozen trees over the columns of a node's input.

A tree is a value: equal trees are the same in sets, in dictionaries and for the identity of plan
nodes. The columns and the meaning of a tree come from its parts and never from its text. Walks are
loops, since an expression may be deeper than Python's stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from everview.plan.expressions.written import words
from everview.schema import unquoted


class Tree:
    """An expression, or a part of one."""

    kind: ClassVar[str]

    def parts(self) -> tuple[Tree, ...]:
        """The trees right below this one."""
        return ()

    def with_parts(self, parts: Sequence[Tree]) -> Tree:
        """The same tree over other parts, as many as it has."""
        return self

    def walk(self, below: Callable[[Tree], tuple[Tree, ...]] | None = None) -> Iterator[Tree]:
        """Every part, those below before those above; `below` says which parts to follow."""
        seen: set[int] = set()
        remaining: list[tuple[Tree, bool]] = [(self, False)]
        while remaining:
            tree, is_done = remaining.pop()
            if is_done:
                yield tree
            elif id(tree) not in seen:
                seen.add(id(tree))
                remaining.append((tree, True))
                parts = tree.parts() if below is None else below(tree)
                remaining += [(part, False) for part in reversed(parts)]

    def to_json(self) -> list[list[Any]]:
        """The distinct parts, those below first; a part has the places of those below it."""
        places: dict[tuple[Any, ...], int] = {}
        known: dict[int, int] = {}
        for part in self.walk():
            below = [known[id(lower)] for lower in part.parts()]
            known[id(part)] = places.setdefault((part.kind, *part._own(), *below), len(places))
        return [list(part) for part in places]

    @staticmethod
    def from_json(document: list[list[Any]]) -> Tree:
        trees: list[Tree] = []
        for kind, *values in document:
            trees.append(_KINDS[kind]._from_json(values, trees))
        return trees[-1]

    def _own(self) -> tuple[str, ...]:
        """The values of the tree itself, beside its parts."""
        raise NotImplementedError

    @classmethod
    def _from_json(cls, values: list[Any], trees: list[Tree]) -> Tree:
        return cls(*values)

    @cached_property
    def _value(self) -> str:
        return json.dumps(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, eq=False)
class Ref(Tree):
    """A column of the input."""

    kind = "column"
    name: str

    def _own(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, eq=False)
class Variable(Tree):
    """A variable of a function within an expression; the form of the function names it too."""

    kind = "variable"
    name: str

    def _own(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True, eq=False)
class Lit(Tree):
    """A constant of a query: SQL for its value, and its SQL type. Constants that are the same in
    all queries are parts of forms."""

    kind = "literal"
    text: str
    type: str

    def _own(self) -> tuple[str, ...]:
        return self.text, self.type


@dataclass(frozen=True, eq=False)
class Apply(Tree):
    """Anything else: SQL with places for arguments, as in `({0} + {1})`. Double other braces."""

    kind = "apply"
    form: str
    arguments: tuple[Tree, ...] = ()

    def parts(self) -> tuple[Tree, ...]:
        return self.arguments

    def with_parts(self, parts: Sequence[Tree]) -> Tree:
        return Apply(self.form, tuple(parts))

    def _own(self) -> tuple[str, ...]:
        return (self.form,)

    @classmethod
    def _from_json(cls, values: list[Any], trees: list[Tree]) -> Tree:
        form, *places = values
        return cls(form, tuple(trees[place] for place in places))


@dataclass(frozen=True, eq=False)
class Either(Tree):
    """One expression for Spark, and another that has the same values on Sail."""

    kind = "either"
    spark: Tree
    sail: Tree

    def parts(self) -> tuple[Tree, ...]:
        return self.spark, self.sail

    def with_parts(self, parts: Sequence[Tree]) -> Tree:
        return Either(*parts)

    def _own(self) -> tuple[str, ...]:
        return ()

    @classmethod
    def _from_json(cls, values: list[Any], trees: list[Tree]) -> Tree:
        return cls(*(trees[place] for place in values))


@dataclass(frozen=True, eq=False)
class Refused(Tree):
    """Stands for a part that Sail would answer otherwise: `why` tells users how."""

    kind = "refused"
    why: str

    def _own(self) -> tuple[str, ...]:
        return (self.why,)


@dataclass(frozen=True, eq=False)
class Written(Tree):
    """A whole expression as text, from an old plan: see `written`."""

    kind = "written"
    text: str

    def _own(self) -> tuple[str, ...]:
        return (self.text,)


_KINDS: dict[str, type[Tree]] = {
    tree.kind: tree for tree in (Ref, Variable, Lit, Apply, Either, Refused, Written)
}


def columns_of(*trees: Tree) -> set[str]:
    """The columns that trees read, on either engine; of an old text, every word that may be one."""
    parts = [part for tree in trees for part in tree.walk()]
    names = {part.name for part in parts if isinstance(part, Ref)}
    return names.union(*(words(part.text) for part in parts if isinstance(part, Written)))


def column_of(tree: Tree) -> str | None:
    """The name of a tree that is just a column, else None. An old text may also be a word that is
    no column."""
    if isinstance(tree, Written):
        name = unquoted(tree.text)
        return name if name != tree.text or name.isidentifier() else None
    return tree.name if isinstance(tree, Ref) else None


def substituted(tree: Tree, replacements: Mapping[str, Tree]) -> Tree:
    """The tree with columns replaced by other trees. Raises `ValueError` for an old text that may
    have one of these columns in it."""

    def replaced(part: Tree) -> Tree:
        if isinstance(part, Ref) and part.name in replacements:
            new = replacements[part.name]
            return Apply("({0})", (new,)) if isinstance(new, Apply | Either | Written) else new
        if isinstance(part, Written) and not replacements.keys().isdisjoint(words(part.text)):
            raise ValueError(f"no column of the text {part.text[:80]} can be replaced")
        return part

    return changed(tree, replaced)


def changed(
    tree: Tree,
    change: Callable[[Tree], Tree],
    below: Callable[[Tree], tuple[Tree, ...]] | None = None,
) -> Tree:
    """The tree with each part changed, those below before those above. Parts that `below` leaves
    out stay as they are."""
    results: dict[int, Tree] = {}
    for part in tree.walk(below):
        parts = part.parts()
        new = [results.get(id(old), old) for old in parts]
        is_same = all(old is new_part for old, new_part in zip(parts, new, strict=True))
        results[id(part)] = change(part if is_same else part.with_parts(new))
    return results[id(tree)]
