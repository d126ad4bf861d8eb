"""Statements as text, tokens and trees.

The tree says what a statement is. What the engine is to evaluate is cut out of the original text,
by the tokens' positions, and never written anew: sqlglot's Spark and Spark differ in details.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from everview.errors import InvalidSql

# What sqlglot can't read comes back as a command, which we refuse in our own words.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET)

SUPPORTED = (
    "CREATE TABLE, ALTER TABLE, DROP TABLE, DESCRIBE, SHOW TABLES, INSERT INTO, UPDATE, "
    "DELETE FROM, SELECT, CREATE MATERIALIZED VIEW, DROP VIEW, SHOW VIEWS, EXPLAIN, VERIFY"
)


class Spark4(Spark):
    """Spark as of version 4, where two quotes within a string are one quote.

    sqlglot takes all that follows EXPLAIN or SHOW as one string; to us it is words.
    """

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", '"', "\\"]  # noqa: RUF012
        KEYWORDS = {  # noqa: RUF012
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if word not in ("EXPLAIN", "SHOW")
        }


_dialect = Spark4()


@dataclass(frozen=True)
class Statement:
    """One statement: its text, and on demand its tokens and its tree."""

    text: str

    @cached_property
    def tokens(self) -> list[Token]:
        return tokenize(self.text)

    @cached_property
    def tree(self) -> exp.Expr:
        return _parse(self.text)

    @property
    def verb(self) -> str:
        """The word the statement begins with, in capitals."""
        first = next((t for t in self.tokens if t.token_type not in _OPEN), self.tokens[0])
        return first.text.upper()

    def cut(self, start: int, stop: int | None = None) -> str:
        """The text of tokens start..stop-1, to the end for None."""
        tokens = self.tokens[start:stop]
        return self.text[tokens[0].start : tokens[-1].end + 1] if tokens else ""

    def find(self, kind: TokenType, start: int = 0) -> int | None:
        """The position of the first such token outside parentheses."""
        return next((at for at, token in self._outside(start) if token.token_type == kind), None)

    def pieces(self, start: int, stop: int | None) -> list[tuple[int, int]]:
        """Token ranges between the commas outside parentheses."""
        stop = len(self.tokens) if stop is None else stop
        commas = [
            at
            for at, token in self._outside(start)
            if token.token_type == TokenType.COMMA and at < stop
        ]
        return list(zip([start, *(at + 1 for at in commas)], [*commas, stop], strict=True))

    def after_group(self, start: int) -> int:
        """The position after the parenthesis that opens at `start`."""
        return next(at for at, _ in self._outside(start) if at > start)

    def _outside(self, start: int) -> Iterator[tuple[int, Token]]:
        depth = 0
        for at in range(start, len(self.tokens)):
            token = self.tokens[at]
            if token.token_type in _CLOSE:
                depth -= 1
                continue
            if depth == 0:
                yield at, token
            if token.token_type in _OPEN:
                depth += 1


def tokenize(text: str) -> list[Token]:
    try:
        return _dialect.tokenize(text)
    except TokenError as error:
        reason = error.__cause__ or error
        raise InvalidSql(
            f"the statement can't be read: {reason}; is a quote or comment left open?"
        ) from None


def is_complete(script: str) -> bool:
    """Whether a script ends with a semicolon, and not in the middle of a string or comment."""
    try:
        tokens = tokenize(script)
    except InvalidSql:
        return False
    return not tokens or tokens[-1].token_type == TokenType.SEMICOLON


def split(script: str) -> list[str]:
    """The statements of a script, which are separated by semicolons."""
    statements: list[str] = []
    begin: Token | None = None
    end: Token | None = None
    for token in tokenize(script):
        if token.token_type == TokenType.SEMICOLON:
            if begin is not None and end is not None:
                statements.append(script[begin.start : end.end + 1])
            begin = None
            continue
        begin, end = begin or token, token
    if begin is not None and end is not None:
        statements.append(script[begin.start : end.end + 1])
    return statements


def _parse(text: str) -> exp.Expr:
    try:
        tree = _dialect.parse(text)[0]
    except ParseError as error:
        raise InvalidSql(_explain(error.errors[0])) from None
    if tree is None:
        raise InvalidSql("there is no statement")
    return tree


def _explain(error: dict[str, Any]) -> str:
    highlight = error["highlight"] or ""
    column = max(1, error["col"] - len(highlight) + 1)
    before = (error["start_context"] or "")[-30:].lstrip()
    place = f"line {error['line']}, column {column}"
    description = error["description"].split(" but got <")[0].split(" for <class")[0]
    return f"{place}: {description}, at >{highlight}< after {before!r}"


def only(text: str) -> Statement:
    """The one statement of a text. Raises `InvalidSql` if there are none or more."""
    if not isinstance(text, str):
        raise InvalidSql(f"a statement must be text, not {type(text).__name__}")
    statements = split(text)
    if not statements:
        raise InvalidSql(f"there is no statement; supported: {SUPPORTED}")
    if len(statements) > 1:
        raise InvalidSql(
            f"{len(statements)} statements instead of one; run them one by one "
            "(everview.sql.split takes a script apart)"
        )
    return Statement(statements[0])
