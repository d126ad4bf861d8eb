"""Spark's optimizer as our SQL front end: a query's optimized plan, translated into plan nodes.

Only this code looks into Spark. Spark gets tables without rows, with their types and nullability; a
view's columns have the names, types and nullability that Spark gives them.
"""

from everview.sql.catalyst.front import translate

__all__ = ["translate"]
