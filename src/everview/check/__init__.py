"""Checking that views are what they should be.

`verify` recomputes a view as it is now; `check_history` judges all that was seen of a run.
"""

from everview.check.evaluate import Definition
from everview.check.findings import Counterexample, Finding, Level, Verdict
from everview.check.history import Commit, History, Read, Write
from everview.check.levels import check_history
from everview.check.recorder import Recorder

__all__ = [
    "Commit",
    "Counterexample",
    "Definition",
    "Finding",
    "History",
    "Level",
    "Read",
    "Recorder",
    "Verdict",
    "Write",
    "check_history",
]
