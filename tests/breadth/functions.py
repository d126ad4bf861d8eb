"""Every function of Spark's, called with columns of rows that hurt.

What a function takes is told by the examples in Spark's own description of it: each argument of an
example is put as it is, and as columns of the types that are akin to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import tokenize
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from tests.breadth.hurting import POOLS

# with large numbers these take all memory, or for ever
_LARGE = {
    *("repeat", "space", "lpad", "rpad", "sequence", "array_repeat", "array_insert", "round"),
    *("bround", "format_number", "ceil", "floor", "ceiling", "factorial", "slice"),
}
_OPERATORS = {
    **{sign: f"{{}} {sign} {{}}" for sign in ("+", "-", "*", "/", "%", "div", "&", "|", "^", "||")},
    **{sign: f"{{}} {sign} {{}}" for sign in ("=", "<=>", "<", ">=", "<>", "AND", "OR", "LIKE")},
    "minus": "- {}",
    "~": "~ {}",
    "NOT": "NOT {}",
    "IN": "{} IN ({}, {})",
    "BETWEEN": "{} BETWEEN {} AND {}",
    "CASE": "CASE WHEN {} THEN {} ELSE {} END",
    "subscript": "{}[{}]",
}
_TYPES = list(dict.fromkeys(type_ for type_, _, _ in POOLS.values()))
_NUMBERS = ("int", "long", "double", "dec", "big", "float", "byte")
_MOMENTS = ("date", "ts", "ntz", "str")
_ARRAYS = ("ints", "strs", "reals", "lists")
_ANY = ("int", "long", "double", "dec", "big", "str", "bin", "date", "ts", "ints", "row", "map")
_AKIN: dict[str, Sequence[str]] = {
    **dict.fromkeys(("int", "bigint", "tinyint", "smallint", "double", "decimal"), _NUMBERS),
    "interval": ("span",),
    "string": ("str", "bin"),
    "binary": ("bin", "str"),
    **dict.fromkeys(("date", "timestamp"), _MOMENTS),
    "array": _ARRAYS,
    "map": ("map",),
    "struct": ("row",),
    "boolean": ("bool",),
}
_MIXED = (
    *(("int", "long"), ("byte", "short"), ("long", "double"), ("int", "dec"), ("big", "long")),
    *(("date", "int"), ("ts", "span"), ("ts", "date"), ("date", "span"), ("span", "int")),
    *(("span", "double"), ("str", "int"), ("ints", "few"), ("map", "str"), ("dec", "big")),
)
_EXAMPLES = 2  # of a function
_EXAMPLE = re.compile(r"> SELECT (\w+)\((.*)\);\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """An expression over the table of `hurting`, and the function that it is for."""

    function: str
    text: str


def calls(spark: SparkSession, each: int, step: int = 1) -> Iterator[Call]:
    """So many calls of each function, or of every so-manieth; Spark may refuse any of them."""
    for name, template in list(_OPERATORS.items())[::step]:
        yield from _operated(name, template)
    for type_ in _TYPES[::step]:
        for column in POOLS:
            yield Call("cast", f"CAST({column}_1 AS {type_})")
            yield Call("try_cast", f"try_cast({column}_1 AS {type_})")
    names = [row[0] for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()]
    for name in sorted(name for name in names if re.fullmatch(r"\w+", name))[::step]:
        made = list(_called(name, _examples(spark, name)))
        yield from Random(name).sample(made, min(each, len(made)))


def _operated(name: str, template: str) -> Iterator[Call]:
    count = template.count("{}")
    for column in POOLS:
        yield Call(name, template.format(*(f"{column}_{1 + i % 2}" for i in range(count))))
    for one, other in _MIXED if count == 2 else ():
        yield Call(name, template.format(f"{one}_1", f"{other}_2"))


def _examples(spark: SparkSession, name: str) -> list[list[tuple[str, str]]]:
    """The arguments of a function in the examples of its description, each with its type."""
    described = spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect()
    text = "\n".join(str(row[0]) for row in described)
    found = (_arguments(call[2]) for call in _EXAMPLE.finditer(text) if call[1].lower() == name)
    known = [arguments for arguments in found if arguments][:_EXAMPLES]
    return [[(one, _type(spark, one)) for one in arguments] for arguments in known]


@lru_cache(None)
def _type(spark: SparkSession, text: str) -> str:
    """The type of an argument as Spark calls it; '' if it is none by itself, as a lambda."""
    try:
        return spark.sql(f"SELECT {text}").dtypes[0][1]
    except (PySparkException, Py4JJavaError, ValueError):
        return ""


def _arguments(text: str) -> list[str] | None:
    """What commas part; None if it can't be told."""
    try:
        tokens = tokenize(text, dialect="spark")
    except SqlglotError:
        return None
    depth, starts, ends = 0, [0], []
    for token in tokens:
        opens = token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth += opens - (token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET))
        if depth < 0:
            return None
        if token.token_type == TokenType.COMMA and depth == 0:
            ends.append(token.start)
            starts.append(token.end + 1)
    ends.append(len(text))
    parts = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return parts if text.strip() else []


def _called(name: str, examples: list[list[tuple[str, str]]]) -> Iterator[Call]:
    made = set()
    for example in examples:
        texts = [text for text, _ in example]
        kinds = [_columns(name, place, type_) for place, (_, type_) in enumerate(example)]
        for place, columns in enumerate(kinds):
            for column in columns:
                made.add((*texts[:place], f"{column}_1", *texts[place + 1 :]))
        for turn in range(max(map(len, kinds)) if len(kinds) > 1 else 0):
            numbers: Counter[str] = Counter()
            together = []
            for text, columns in zip(texts, kinds, strict=True):
                column = columns[turn % len(columns)] if columns else ""
                numbers[column] += 1
                together.append(f"{column}_{1 + (numbers[column] - 1) % 2}" if column else text)
            made.add(tuple(together))
    yield from (Call(name, f"{name}({', '.join(arguments)})") for arguments in sorted(made))


def _columns(name: str, place: int, type_: str) -> Sequence[str]:
    """The columns to put in place of an argument of a type: those that are akin to it."""
    if not type_:
        return ()
    akin = next((columns for start, columns in _AKIN.items() if type_.startswith(start)), _ANY)
    return ["few"] if name in _LARGE and place and akin is _NUMBERS else akin
