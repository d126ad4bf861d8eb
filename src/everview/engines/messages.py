"""Exceptions of engines, in words for the author of the query."""

from __future__ import annotations

import re
import sys

from pyspark.errors import AnalysisException, IllegalArgumentException

from everview import errors
from everview.engines.failures import cause
from everview.errors import EngineFailed, EverviewError, InvalidSql, SqlError

_OF_READING = (
    errors.DatabaseError,
    errors.CatalogError,
    errors.DataError,
    errors.LogError,
    errors.WriteError,
    SqlError,
)
_NAMED = re.compile(r"\b([A-Z]\w+): (.+)$", re.MULTILINE)
_WITHIN = re.compile(r"\b([A-Z]\w+): (?=(.+)$)", re.MULTILINE)  # also those inside another
_TRACE = re.compile(r";\n'?[A-Z]|\n\s*(?:JVM stacktrace|at |Traceback)")
_NOT_FOUND = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\].*?(`.+?`) cannot .*?SQLSTATE: \w+", re.DOTALL)
_MISSING = re.compile(
    r"ModuleNotFoundError: No module named '([\w.]+)'|find the data source: (everview)\b"
)
_EXTERNAL = "External error: "


def readable(error: Exception) -> EverviewError:
    """The error without Spark's traces; if an error of Everview caused it, that one."""
    text = str(error)
    if missing := _MISSING.search(text):
        return EngineFailed(
            f"Spark's Python workers do not find {missing[1] or missing[2]}, so they run another "
            f"Python than this process; set PYSPARK_PYTHON={sys.executable} before Spark starts"
        )
    for name, message in _WITHIN.findall(text):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, _OF_READING):
            return kind(message)
    if "Traceback" in text and (last := _NAMED.findall(text)):
        return SqlError(": ".join(last[-1]).replace("RuntimeError: ", "").replace(_EXTERNAL, ""))
    text = _NOT_FOUND.sub(
        r"there is no table or view \1; SHOW TABLES and SHOW VIEWS list them", text
    )
    wrong = isinstance(error, AnalysisException | IllegalArgumentException)
    message = cause(text) or _TRACE.split(text)[0].strip()
    return (InvalidSql if wrong else SqlError)(message or type(error).__name__)
