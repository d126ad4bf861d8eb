"""SQL statements: recognised with sqlglot, done by the store, evaluated by the engine."""

from everview.parsing import is_complete, split
from everview.sql.statements import run

__all__ = ["is_complete", "run", "split"]
