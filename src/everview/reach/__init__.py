"""What SQL may reach: tables and views of its database, values and ranges, and functions that only
compute. An allow-list: whatever is not known to be harmless is refused, before an engine sees it.

`tokens` reads a text as Spark and Sail do and knows the calls in it; `queries` checks a whole query
by its tree, `plans` the texts in a view's plan. What Spark itself makes of a query is checked
in `everview.reach.spark`.
"""

from everview.reach.plans import check_node, check_plan
from everview.reach.queries import check_query

__all__ = ["check_node", "check_plan", "check_query"]
