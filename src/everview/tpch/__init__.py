"""TPC-H, for demo, tests and benchmarks: tables, data, the 22 queries, random changes."""

from everview.tpch.queries import QUERIES
from everview.tpch.tables import KEYS, create_tables, generate

__all__ = ["KEYS", "QUERIES", "create_tables", "generate"]
