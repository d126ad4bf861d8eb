"""Rules for expressions that Sail answers otherwise than Spark.

If other words make Sail give Spark's answer, Sail gets those. If only some values are answered
otherwise, a view stops at those; if too many are, it is refused on Sail before its first epoch.
`tests/breadth` compares both engines to find such expressions.
"""

from everview.sql.catalyst.sail.agreement import agreeing, ordinary

__all__ = ["agreeing", "ordinary"]
