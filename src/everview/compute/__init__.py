"""Expressions of plans computed with Arrow: only those for which Arrow's answer is Spark's.

`compiled` says whether a tree is such an expression. Values for which the answer could differ, or
for which Spark would fail, raise `EngineNeeded` (or an error of Arrow's): then the engine computes
the rows, and says what is wrong with them.
"""

from everview.compute.expressions import Compiled, compiled
from everview.compute.hashing import hashes
from everview.compute.values import EngineNeeded

__all__ = ["Compiled", "EngineNeeded", "compiled", "hashes"]
