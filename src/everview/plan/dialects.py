"""One text of an expression for both engines.

A plan is for Spark and for Sail. Where Sail has to be asked in other words, its text stands behind
Spark's, in a comment that Spark does not read; where Sail has another answer and no words help, a
refusal stands there. So a text that is cut, moved or put into another stays right for both.
"""

from __future__ import annotations

import re

from everview.errors import UnsupportedSql

_SPARK, _SAIL, _END = "/*\ue001on spark*/", "/*\ue001on sail: ", "*/"  # as nobody writes them
_BOTH = re.compile(f"{re.escape(_SPARK)}(.*?){re.escape(_SAIL)}(.*?){re.escape(_END)}", re.DOTALL)
_REFUSAL = re.compile(r"\[\[not on Sail: (.*?)\]\]", re.DOTALL)
# within the comment, signs that would begin or end one
_SAFE = {"/*": "/\ue000*", "*/": "*\ue000/"}


def either(spark: str, sail: str) -> str:
    """Text that is `spark` to Spark and `sail` to Sail; both may have such texts in them."""
    spark, sail = on_spark(spark), on_sail(sail)
    if spark == sail:
        return spark
    for sign, safe in _SAFE.items():
        sail = sail.replace(sign, safe)
    return f"{_SPARK}{spark}{_SAIL}{sail}{_END}"


def not_on_sail(spark: str, why: str) -> str:
    """Text for Spark alone."""
    return either(spark, refused(why))


def refused(why: str) -> str:
    """In place of a text for Sail: `why` says what it does, for the one who runs it there."""
    return f"[[not on Sail: {why}]]"


def on_spark(text: str) -> str:
    """What Spark is asked."""
    return _BOTH.sub(lambda both: both[1], text)


def on_sail(text: str) -> str:
    """What Sail is asked; refusals are still in it."""
    return _BOTH.sub(lambda both: _plain(both[2]), text)


def both(text: str) -> tuple[str, str]:
    """What Spark is asked and what Sail is; NULL in place of what is refused there."""
    return on_spark(text), _REFUSAL.sub("NULL", on_sail(text))


def _plain(sail: str) -> str:
    for sign, safe in _SAFE.items():
        sail = sail.replace(safe, sign)
    return sail


def checked_on_sail(text: str) -> str:
    """What Sail is asked. Raises `UnsupportedSql` for what is refused there."""
    text = on_sail(text)
    if refusal := _REFUSAL.search(text):
        raise UnsupportedSql(
            f"{refusal[1]}, so this view can't be maintained on Sail: run it with the engine spark"
        )
    return text
