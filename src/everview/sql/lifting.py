"""Queries that differ in constants: these become parameters, and what is left is the same.

A constant is lifted where a condition compares it, in WHERE, HAVING or ON: with =, <>, <, <=, >,
>=, BETWEEN or IN. Others may decide what the query is, as in LIMIT, and stay. Where a constant
stands in a query depends on its words only, so it is found once for all queries with these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa
from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from everview.errors import InvalidSql
from everview.parsing import Statement
from everview.schema import Column

Value = int | str | Decimal | date
MOST = 16  # parameters
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In)
_BETWEEN = (exp.And, exp.Or, exp.Not, exp.Paren)  # comparisons and the clause
_SUMS = (exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Paren)  # a constant and its comparison
_WHOLE = re.compile(r"\d{1,18}")
_DECIMAL = re.compile(r"\d{1,16}\.\d{1,18}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_INT = 2**31
_WIDE = 16  # digits before the point of a decimal that is compared as it stands


@dataclass(frozen=True)
class Lifted:
    """A query with `:name` for constants. Queries with the same `tokens` differ in values only.
    `days` are parameters whose values are texts, all of which are dates."""

    text: str
    tokens: str
    parameters: tuple[Column, ...]
    values: tuple[Value, ...]
    days: frozenset[str]


@dataclass(frozen=True)
class _Place:
    """A token that is a constant; whether it is compared as it stands, and not within a sum."""

    token: int
    is_bare: bool


@lru_cache(1 << 14)
def lifted(query: str) -> Lifted | None:
    """The query with parameters for its constants; None if it has none that can be lifted."""
    statement = Statement(query)
    try:
        places = _places(statement)
    except InvalidSql:
        return None
    tokens = statement.tokens
    types_and_values = {place.token: _constant(tokens, place) for place in places}
    constants = {number: constant for number, constant in types_and_values.items() if constant}
    if not 1 <= len(constants) <= MOST:
        return None
    prefix = _free_prefix(tokens)
    names = {token: f"{prefix}{number}" for number, token in enumerate(constants, 1)}
    days = {number for number, constant in constants.items() if _is_text_of_day(*constant)}
    text, words, at = "", list[str](), 0
    for number, token in enumerate(tokens):
        if number in constants:
            begin = tokens[number - 1].start if _is_date(tokens, number) else token.start
            text += f"{query[at:begin]}:{names[number]}"
            at = token.end + 1
            words = words[:-1] if _is_date(tokens, number) else words
            words.append(f":{constants[number][0]}{' of a day' * (number in days)}")
        else:
            words.append(query[token.start : token.end + 1])
    parameters = [Column(names[n], type_, False) for n, (type_, _) in constants.items()]
    values = tuple(value for _, value in constants.values())
    names_of_days = frozenset(names[number] for number in days)
    return Lifted(text + query[at:], " ".join(words), tuple(parameters), values, names_of_days)


# by the words of a query
_known: dict[tuple[tuple[TokenType, str], ...], tuple[_Place, ...]] = {}


def _places(statement: Statement) -> tuple[_Place, ...]:
    """The constants of a query that conditions compare."""
    shape = tuple(
        (token.token_type, "" if token.token_type in _CONSTANTS else token.text)
        for token in statement.tokens
    )
    if shape not in _known:
        if len(_known) >= 1024:
            _known.clear()
        _known[shape] = tuple(_compared(statement))
    return _known[shape]


_CONSTANTS = (TokenType.NUMBER, TokenType.STRING)
_BEFORE_TEXTS = (
    *(TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE),
    *(TokenType.L_PAREN, TokenType.COMMA, TokenType.BETWEEN, TokenType.AND, TokenType.OR),
    *(TokenType.WHERE, TokenType.HAVING, TokenType.ON, TokenType.NOT),
)


def _compared(statement: Statement) -> Iterator[_Place]:
    tree = statement.tree
    if not isinstance(tree, exp.Select):
        return
    numbers = {token.start: number for number, token in enumerate(statement.tokens)}
    found = {}
    for literal in tree.find_all(exp.Literal):
        number = numbers.get(literal.meta.get("start", -1))
        if number is not None and (is_bare := _is_compared(literal, tree)) is not None:
            found[number] = is_bare
    for number in sorted(found):
        yield _Place(number, found[number])


def _is_compared(literal: exp.Expr, root: exp.Select) -> bool | None:
    """Whether a constant is compared as it stands; None if no condition compares it."""
    node = literal.parent
    if isinstance(node, exp.Cast):  # DATE '2026-01-01'
        node = node.parent
    is_bare = isinstance(node, _COMPARISONS)
    side = literal
    while isinstance(node, _SUMS):
        side, node = node, node.parent
    if not isinstance(node, _COMPARISONS) or node.find(exp.Column) is None:
        return None
    if side.find(exp.Column) is not None:
        return None
    if node.find(exp.Select) is not None:
        return None
    condition: exp.Expr = node
    while isinstance(condition.parent, _BETWEEN):
        condition = condition.parent
    clause = condition.parent
    is_on = isinstance(clause, exp.Join) and clause.args.get("on") is condition
    if clause is None or not (is_on or isinstance(clause, exp.Where | exp.Having)):
        return None
    return is_bare if _is_part_of(clause.parent, root) else None


def _is_part_of(select: exp.Expr | None, root: exp.Select) -> bool:
    """Whether a SELECT is the whole query, or stands in its FROM or WITH."""
    while select is not root:
        if not isinstance(select, exp.Select):
            return False
        parent = select.parent
        if isinstance(parent, exp.CTE) and parent.parent is not None:
            select = parent.parent.parent
        elif isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.From | exp.Join):
            parent = parent.parent.parent
            select = parent
        else:
            return False
    return True


def _constant(tokens: Sequence[Token], place: _Place) -> tuple[pa.DataType, Value] | None:
    """The type and the value of a constant; None if it has to stay in the query."""
    token = tokens[place.token]
    before = tokens[place.token - 1]
    text = token.text
    if token.token_type == TokenType.STRING:
        if _is_date(tokens, place.token):
            return _day(text)
        is_plain = token.end - token.start + 1 == len(text) + 2 and "\\" not in text
        # TIMESTAMP '...' has a word before it
        return (pa.string(), text) if is_plain and before.token_type in _BEFORE_TEXTS else None
    if before.end + 1 == token.start and before.token_type == TokenType.DOT:
        return None  # .5
    if token.end - token.start + 1 != len(text):
        return None  # 5L
    if _WHOLE.fullmatch(text):
        number = int(text)
        return (pa.int64() if place.is_bare or number >= _INT else pa.int32()), number
    if _DECIMAL.fullmatch(text):
        value, scale = Decimal(text), len(text.partition(".")[2])
        digits = max(len(str(int(value.scaleb(scale)))), scale)
        return pa.decimal128(_WIDE + scale if place.is_bare else digits, scale), value
    return None


def _is_date(tokens: Sequence[Token], number: int) -> bool:
    return number > 0 and tokens[number - 1].text.upper() == "DATE"


def _day(text: str) -> tuple[pa.DataType, Value] | None:
    try:
        return (pa.date32(), date.fromisoformat(text)) if _DAY.fullmatch(text) else None
    except ValueError:
        return None


def _is_text_of_day(type_: pa.DataType, value: Value) -> bool:
    return type_ == pa.string() and _day(str(value)) is not None


def _free_prefix(tokens: Sequence[Token]) -> str:
    """What begins the names of parameters, as no word of the query does."""
    words = {token.text.lower() for token in tokens}
    prefix = "value_"
    while any(word.startswith(prefix) for word in words):
        prefix = f"_{prefix}"
    return prefix
