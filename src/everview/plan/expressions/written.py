"""Expressions of old plans, from before there were trees: SQL text for both engines.

If Sail needed other words, those stood behind Spark's, in a comment that Spark does not read. Such
a text is loaded as one `Written` and stored as that text again. So the nodes of an old plan keep
their identities, and with them their states, and run as they did. A view gets trees when it is
planned anew.
"""

from __future__ import annotations

import re

_SPARK, _SAIL, _END = "/*\ue001on spark*/", "/*\ue001on sail: ", "*/"
_BOTH = re.compile(f"{re.escape(_SPARK)}(.*?){re.escape(_SAIL)}(.*?){re.escape(_END)}", re.DOTALL)
_REFUSAL = re.compile(r"\[\[not on Sail: (.*?)\]\]", re.DOTALL)
# within the comment, characters that would begin or end one are replaced
_SAFE = {"/*": "/\ue000*", "*/": "*\ue000/"}
_NOT_NULL = re.compile(r"`?(\w+)`? IS NOT NULL")


def words(text: str) -> set[str]:
    """Every word of a text: the columns it names are among them."""
    return set(re.findall(r"\w+", text))


def not_null(text: str) -> list[str] | None:
    """The columns that a condition says are not NULL; None if it says more."""
    parts = for_spark(text).split(" AND ")
    matches = [_NOT_NULL.fullmatch(part.strip(" ()")) for part in parts]
    return [part[1] for part in matches if part] if all(matches) else None


def for_spark(text: str) -> str:
    """SQL for Spark."""
    return _BOTH.sub(lambda both: both[1], text)


def for_sail(text: str) -> tuple[str, str | None]:
    """SQL for Sail, with NULL in place of refused parts; and why a part is refused, if one is."""
    sail = _BOTH.sub(lambda both: _plain(both[2]), text)
    refusal = _REFUSAL.search(sail)
    return _REFUSAL.sub("NULL", sail), refusal and refusal[1]


def _plain(sail: str) -> str:
    for sign, safe in _SAFE.items():
        sail = sail.replace(safe, sign)
    return sail
