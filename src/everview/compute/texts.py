"""Functions of texts and dates."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from everview.compute.values import Argument, Builder, EngineNeeded, Step, Values

_TEXT = pa.string()
_FIRST_DAY, _LAST_DAY = -719162, 2932896  # 0001-01-01 and 9999-12-31


def _are_texts(arguments: Sequence[Argument]) -> bool:
    return all(argument.type == _TEXT for argument in arguments)


def matched(name: str) -> Builder:
    """The builder of a search for a constant text."""

    def build(arguments: Sequence[Argument]) -> Step | None:
        pattern = arguments[1].text
        if not _are_texts(arguments) or pattern is None:
            return None
        function = getattr(pc, name)
        return Step(pa.bool_(), lambda text, _: function(text, pattern=pattern))

    return build


def like(arguments: Sequence[Argument]) -> Step | None:
    pattern = arguments[1].text
    if not _are_texts(arguments) or pattern is None or "\\" in pattern:
        return None
    wild = {"%": ".*", "_": "."}
    parts = (wild.get(sign) or re.escape(sign) for sign in pattern)
    expression = rf"(?s)\A{''.join(parts)}\z"
    return Step(pa.bool_(), lambda text, _: pc.match_substring_regex(text, pattern=expression))


def substring(arguments: Sequence[Argument]) -> Step | None:
    start, length = arguments[1].number, arguments[2].number
    if arguments[0].type != _TEXT or start is None or length is None or start < 0:
        return None
    begin = max(start - 1, 0)
    end = begin + max(length, 0)
    return Step(_TEXT, lambda text, *_: pc.utf8_slice_codeunits(text, begin, end))


def length(arguments: Sequence[Argument]) -> Step | None:
    return Step(pa.int32(), pc.utf8_length) if _are_texts(arguments) else None


def joined(arguments: Sequence[Argument]) -> Step | None:
    if not arguments or not _are_texts(arguments):
        return None
    return Step(_TEXT, lambda *texts: pc.binary_join_element_wise(*texts, ""))


def in_case(name: str) -> Builder:
    """The builder of upper and lower, for texts in ASCII: other alphabets have rules that differ
    between libraries."""
    function = getattr(pc, f"ascii_{name}")

    def cased(text: Values) -> Values:
        is_ascii = pc.string_is_ascii(text)
        flags = is_ascii if isinstance(is_ascii, pa.Array) else pa.array([is_ascii.as_py()])
        if pc.all(flags).as_py() is False:
            raise EngineNeeded("upper and lower case of other alphabets")
        return function(text)

    def build(arguments: Sequence[Argument]) -> Step | None:
        return Step(_TEXT, cased) if _are_texts(arguments) else None

    return build


def part_of_date(name: str) -> Builder:
    """The builder of year, month and the like."""
    function = getattr(pc, name)

    def part(days: Values) -> Values:
        if not isinstance(days, pa.Array):
            raise EngineNeeded("a constant date")
        bounds = pc.min_max(days.view(pa.int32())).as_py()
        if bounds["min"] is not None and (bounds["min"] < _FIRST_DAY or bounds["max"] > _LAST_DAY):
            raise EngineNeeded("a date before the year 1 or after 9999")
        return function(days).cast(pa.int32())

    def build(arguments: Sequence[Argument]) -> Step | None:
        return Step(pa.int32(), part) if pa.types.is_date32(arguments[0].type) else None

    return build
