"""Splits a text into tokens as Spark and Sail do, and checks the functions that it calls.

The two engines and sqlglot have a lexer each. This one accepts only what all of them read in the
same way, and refuses the rest. So no text is a string to one of them and SQL to another.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple

from everview.errors import InvalidSql, OutOfReach, suggestion
from everview.reach.functions import FUNCTIONS, MOST_ARGUMENTS, SYNTAX

REMEDY = (
    "SQL reaches the tables and views of its database, values and ranges, and functions that only "
    "compute. For all of Spark, read tables with spark.read.format('everview') in a session of "
    "your own"
)


class Kind(Enum):
    WORD = auto()  # also numbers
    NAME = auto()  # in backticks
    STRING = auto()
    COMMENT = auto()
    SIGN = auto()


class Token(NamedTuple):
    kind: Kind
    text: str
    start: int

    @property
    def name(self) -> str:
        """What it names, in small letters."""
        inner = self.text[1:-1].replace("``", "`") if self.kind == Kind.NAME else self.text
        return inner.lower()


_TOKEN = re.compile(
    r"""
    (?P<SPACE> [\ \t\r\n]+ )
    | (?P<COMMENT> --[^\r\n]* | /\* )
    | (?P<STRING> [rR]'[^']*' | [rR]"[^"]*"
                | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<NAME> `(?:[^`]|``)*` )
    | (?P<WORD> \w+ )
    | (?P<SIGN> [()\[\],.;:+*/%=<>!|&^~?-] )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_ENDS = re.compile(r"/\*|\*/")
_CLOSING = {")": "(", "]": "["}
# before a quote these begin a string with rules of its own, in one engine or another
_PREFIXES = {"b", "e", "n", "u", "q", "br", "rb"}


def tokens(text: str) -> list[Token]:
    """The tokens of a text, with its comments.

    Raises `OutOfReach` if engines may read the text differently, and `InvalidSql` if parentheses do
    not match.
    """
    words = list(_tokens(text))
    _check_prefixes(words)
    _check_balanced(text, words)
    return words


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise OutOfReach(
                f"{line_and_column(text, at)}: the character {text[at]!r} is not SQL outside "
                "quotes, or a quote is left open; leave it out, or put it in quotes"
            )
        end = _end_of_comment(text, at) if match[0] == "/*" else match.end()
        if match.lastgroup != "SPACE":
            assert match.lastgroup is not None
            yield Token(Kind[match.lastgroup], text[at:end], at)
        at = end


def _end_of_comment(text: str, start: int) -> int:
    depth = 0
    for match in _COMMENT_ENDS.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise InvalidSql(f"{line_and_column(text, start)}: the comment has no end; close it with */")


def _check_prefixes(words: Sequence[Token]) -> None:
    for token, following in pairwise(words):
        touches = token.start + len(token.text) == following.start and following.kind == Kind.STRING
        if touches and (token.name in _PREFIXES or token.text == "&"):
            raise OutOfReach(
                f"a string can't begin with {token.text}{following.text[0]}, which engines read in "
                "different ways; write it without, or with a space between"
            )


def _check_balanced(text: str, words: Sequence[Token]) -> None:
    opened: list[str] = []
    for token in words:
        if token.text in ("(", "["):
            opened.append(token.text)
        elif token.text in _CLOSING and (not opened or opened.pop() != _CLOSING[token.text]):
            raise InvalidSql(
                f"{line_and_column(text, token.start)}: nothing is open that {token.text} closes"
            )
    if opened:
        raise InvalidSql(f"a parenthesis {opened[-1]} is left open in: {text[:80]}")


def line_and_column(text: str, at: int) -> str:
    """A place in a text, for messages."""
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"


def without_comments(text: str, words: Sequence[Token]) -> str:
    """The text with blanks in place of comments and hints, so that all else stays where it is."""
    for token in words:
        if token.kind == Kind.COMMENT:
            end = token.start + len(token.text)
            text = text[: token.start] + re.sub(r"[^\r\n]", " ", token.text) + text[end:]
    return text


def check_calls(text: str, words: Sequence[Token], not_calls: Collection[int] = ()) -> None:
    """Raise `OutOfReach` if a function is not on the list.

    `not_calls` has the places of names before a list of columns, which are no functions.
    """
    for at, token in enumerate(words[:-1]):
        is_named = token.kind == Kind.NAME or (token.kind == Kind.WORD and token.text[0] > "9")
        if not is_named or words[at + 1].text != "(" or token.start in not_calls:
            continue
        if token.kind == Kind.WORD and token.name in SYNTAX:
            continue
        if at and words[at - 1].text == ".":
            place = line_and_column(text, token.start)
            raise OutOfReach(
                f"{place}: {token.text} is called with a qualified name; write the name alone. "
                f"{REMEDY}"
            )
        if token.name == "identifier":
            _check_identifier(line_and_column(text, token.start), words[at + 2 : at + 5])
        elif token.name not in FUNCTIONS:
            place = line_and_column(text, token.start)
            raise OutOfReach(
                f"{place}: the function {token.text} can't be called here; "
                f"{suggestion(token.name, FUNCTIONS)}{REMEDY}"
            )
        elif token.name in MOST_ARGUMENTS and (
            _arguments(words, at + 1) > MOST_ARGUMENTS[token.name]
        ):
            place = line_and_column(text, token.start)
            raise OutOfReach(
                f"{place}: {token.text} with options can't be called here, since they can name a "
                f"file; leave them out. {REMEDY}"
            )


def _check_identifier(place: str, after: Sequence[Token]) -> None:
    """IDENTIFIER may name one column, by a string."""
    texts = [token.text for token in after]
    plain = re.fullmatch(r"'\w+'|\"\w+\"", texts[0]) if texts else None
    if plain is None or texts[1:2] != [")"] or texts[2:3] == ["("]:
        raise OutOfReach(
            f"{place}: IDENTIFIER may name a column only, as IDENTIFIER('a'). {REMEDY}"
        )


def _arguments(words: Sequence[Token], opens: int) -> int:
    """How many arguments a call has, at most."""
    depth, count = 0, 1
    for token in words[opens:]:
        depth += (token.text in ("(", "[")) - (token.text in _CLOSING)
        count += depth == 1 and token.text == ","
        if depth == 0:
            break
    return count
