"""Trees built from SQL with places for others, and taken apart again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from everview.plan.expressions import written
from everview.plan.expressions.trees import Apply, Lit, Ref, Tree, Written
from everview.schema import quoted

NOT_NULL = "{0} IS NOT NULL"


def sql(form: str, *arguments: Tree) -> Apply:
    """SQL with arguments: `sql("{0} + 1", Ref("a"))`."""
    return Apply(form, arguments)


def verbatim(text: str) -> str:
    """A text as a part of a form."""
    return text.replace("{", "{{").replace("}", "}}")


def places(count: int, between: str = ", ", first: int = 0) -> str:
    """The part of a form with places for so many arguments."""
    return between.join(f"{{{place}}}" for place in range(first, first + count))


def call(function: str, *arguments: Tree) -> Apply:
    return Apply(f"{function}({places(len(arguments))})", arguments)


def cast(tree: Tree, type_: str) -> Apply:
    return Apply(f"CAST({{0}} AS {verbatim(type_)})", (tree,))


def null(type_: str) -> Lit:
    return Lit(f"CAST(NULL AS {type_})", type_)


def string(value: str) -> Lit:
    """A text as a literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return Lit(f"'{escaped}'", "STRING")


def boolean(value: bool) -> Lit:
    return Lit(str(value).lower(), "BOOLEAN")


def field_of(tree: Tree, name: str) -> Apply:
    """A field of a struct."""
    return Apply(f"{{0}}.{verbatim(quoted(name))}", (tree,))


def all_of(conditions: Sequence[Tree]) -> Tree:
    """The condition that all conditions hold; there must be at least one."""
    if len(conditions) == 1:
        return conditions[0]
    return Apply(places(len(conditions), " AND "), tuple(conditions))


def conjuncts(tree: Tree) -> list[Tree]:
    """The conditions from which `all_of` built a tree."""
    parts = tree.parts()
    is_all_of = isinstance(tree, Apply) and tree.form == places(len(parts), " AND ")
    return list(parts) if is_all_of and len(parts) > 1 else [tree]


def operation(tree: Tree) -> str:
    """The form of a tree without parentheses around it, as in `{0} = {1}`; '' if it has no form."""
    form = tree.form if isinstance(tree, Apply) else ""
    return form[1:-1] if form.startswith("(") and form.endswith(")") else form


def not_null_columns(condition: Tree) -> list[str] | None:
    """The columns that a condition says are not NULL; None if it says more."""
    if isinstance(condition, Written):
        return written.not_null(condition.text)
    names = []
    for part in conjuncts(condition):
        column = part.parts()[0] if operation(part) == NOT_NULL else None
        if not isinstance(column, Ref):
            return None
        names.append(column.name)
    return names


def named_struct(fields: Iterable[tuple[str, Tree]]) -> Apply:
    """A struct of fields with plain names."""
    pairs = list(fields)
    form = ", ".join(f"'{name}', {{{place}}}" for place, (name, _) in enumerate(pairs))
    return Apply(f"named_struct({form})", tuple(tree for _, tree in pairs))
