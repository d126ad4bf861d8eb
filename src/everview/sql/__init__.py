"""SQL statements: sqlglot parses them, the store does them, and the engine evaluates queries."""

from everview.parsing import is_complete, split
from everview.sql.statements import batches, run, run_script

__all__ = ["batches", "is_complete", "run", "run_script", "split"]
