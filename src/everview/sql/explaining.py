"""EXPLAIN: how a view is maintained, or how a new one would be."""

from __future__ import annotations

from everview.catalog import ViewRecord
from everview.errors import UnsupportedSql
from everview.estimate.costs import constants_of, cost_of_view, rates_of
from everview.explain.expected import with_estimates
from everview.explain.plan import Document
from everview.explain.views import explain_view
from everview.parsing import only
from everview.sql.context import Context
from everview.sql.create_view import CreateView
from everview.sql.families import as_family
from everview.sql.planning import define


def explain(context: Context, view: str, analyze: bool = False) -> Document:
    """How a view is maintained. `view` is its name, or a CREATE MATERIALIZED VIEW statement, which
    is only explained, with its expected cost.

    With `analyze`, each operator has the work of its last epochs.
    """
    words = view.split(maxsplit=1)
    if len(words) == 2 and words[0].upper() in ("SELECT", "WITH", "FROM", "VALUES"):
        raise UnsupportedSql(
            "EXPLAIN works for views; write CREATE MATERIALIZED VIEW name AS before the query to "
            "see how it would be maintained"
        )
    if len(words) < 2 or words[0].upper() != "CREATE":
        return context.view(view).explain(analyze)
    if analyze:
        raise UnsupportedSql(
            "ANALYZE shows the work of a view's last epochs, and a view that is not created has "
            "none; explain it without ANALYZE"
        )
    creation = as_family(context, CreateView.of(only(view)))
    if (family := creation.definition.family) and family.members not in context.tables():
        raise UnsupportedSql(
            "EXPLAIN CREATE needs the table of members of a view with parameters; create the view, "
            f"then write EXPLAIN {creation.name}"
        )
    return _expected(context, define(context, creation))


def _expected(context: Context, view: ViewRecord) -> Document:
    """How a view would be maintained, and its expected cost."""
    store, engine = context.store, context.engines.name
    return with_estimates(
        explain_view(store, view),
        cost_of_view(store, context.engines.planner, view),
        constants_of(store, engine),
        engine,
        rates_of(store, view.tables),
    )
