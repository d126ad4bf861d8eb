"""Names of nested types taken apart: ARRAY<T>, MAP<K, V> and STRUCT<name: T, ...>, as SQL and Spark
write them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUOTED = r"`(?:[^`]|``)*`"
_TEXT = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
_NESTED = re.compile(r"(ARRAY|MAP|STRUCT)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_TOKEN = re.compile(rf"{_QUOTED}|{_TEXT}|[<>(),]", re.DOTALL)
_FIELD = re.compile(
    rf"(?P<name>{_QUOTED}|\w+)(?:\s*:\s*|\s+)(?P<type>.+?)"
    rf"(?:\s+NOT\s+NULL)?(?:\s+COMMENT\s+(?:{_TEXT}))?",
    re.IGNORECASE | re.DOTALL,
)


def nested_parts(name: str) -> tuple[str, list[str]] | None:
    """'map<STRING, INT>' as MAP and its two parts; None for another name."""
    match = _NESTED.fullmatch(name.strip())
    return match and (match[1].upper(), list(_pieces(match[2])))


def named_field(text: str) -> tuple[str, str] | None:
    """'a: INT NOT NULL' as the name a, in quotes if it is, and the type INT."""
    match = _FIELD.fullmatch(text)
    return match and (match["name"], match["type"])


def _pieces(text: str) -> Iterator[str]:
    """The pieces between the commas outside all brackets."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "<(":
            depth += 1
        elif token[0] in ">)":
            depth -= 1
        elif token[0] == "," and depth == 0:
            yield text[start : token.start()].strip()
            start = token.end()
    yield text[start:].strip()
