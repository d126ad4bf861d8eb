"""Expressions as plans had them before they had trees: SQL text for both engines.

Where Sail had to be asked in other words, those stood behind Spark's, in a comment that Spark does
not read. Such a text is loaded as one `Written` and stored as that text again: so the nodes of a
plan of old keep their identities, by which their states are found, and run as they did. A view
has trees when it is planned anew.
"""

from __future__ import annotations

import re

_SPARK, _SAIL, _END = "/*\ue001on spark*/", "/*\ue001on sail: ", "*/"
_BOTH = re.compile(f"{re.escape(_SPARK)}(.*?){re.escape(_SAIL)}(.*?){re.escape(_END)}", re.DOTALL)
_REFUSAL = re.compile(r"\[\[not on Sail: (.*?)\]\]", re.DOTALL)
# within the comment, signs that would begin or end one
_SAFE = {"/*": "/\ue000*", "*/": "*\ue000/"}
_NOT_NULL = re.compile(r"`?(\w+)`? IS NOT NULL")


def words(text: str) -> set[str]:
    """Every word of a text: the columns it names are among them."""
    return set(re.findall(r"\w+", text))


def not_null(text: str) -> list[str] | None:
    """The columns of which a condition says that they are not NULL; None if it says more."""
    parts = for_spark(text).split(" AND ")
    found = [_NOT_NULL.fullmatch(part.strip(" ()")) for part in parts]
    return [part[1] for part in found if part] if all(found) else None


def for_spark(text: str) -> str:
    """What Spark is asked."""
    return _BOTH.sub(lambda both: both[1], text)


def for_sail(text: str) -> tuple[str, str | None]:
    """What Sail is asked, NULL in place of what is refused there; and why something is."""
    asked = _BOTH.sub(lambda both: _plain(both[2]), text)
    refusal = _REFUSAL.search(asked)
    return _REFUSAL.sub("NULL", asked), refusal and refusal[1]


def _plain(sail: str) -> str:
    for sign, safe in _SAFE.items():
        sail = sail.replace(safe, sign)
    return sail
