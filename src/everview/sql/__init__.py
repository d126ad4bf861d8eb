"""SQL statements: sqlglot parses them, the store does them, and the engine evaluates queries."""

from everview.parsing import is_complete, split
from everview.sql.statements import run

__all__ = ["is_complete", "run", "split"]
