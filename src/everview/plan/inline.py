"""Puts the plans of views into the plans that read them.

This comes after the rules, so that they leave the inner plan as it is: its operators are those of
the inner view, and share its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from everview.plan.expressions import Ref
from everview.plan.nodes import Node, Project, Source


def inline_views(plan: Node, views: Mapping[str, Node]) -> Node:
    """The plan with the plans of views, by name, in place of sources with these names."""
    if isinstance(plan, Source) and plan.table in views:
        return Project(plan.columns, views[plan.table], tuple(map(Ref, plan.read)))
    return plan.with_inputs(partial(inline_views, views=views))
