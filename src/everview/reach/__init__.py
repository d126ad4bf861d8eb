"""What SQL may reach: tables and views of its database, values and ranges, and functions that only
compute. There are lists of what is allowed; the rest is refused before an engine sees it.

`tokens` splits a text as Spark and Sail do and checks the calls in it, `queries` checks the tree of
a query, `plans` checks the texts in a view's plan. `everview.reach.spark` checks Spark's plan of a
query.
"""

from everview.reach.plans import check_node, check_plan
from everview.reach.queries import check_query

__all__ = ["check_node", "check_plan", "check_query"]
