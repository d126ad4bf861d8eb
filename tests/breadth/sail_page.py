"""Writes docs/reference/sail.md: python -m tests.breadth.sail_page (half an hour)"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from everview.engines.engine import start
from tests.breadth.comparing import DIFFERS, LACKING, REFUSED, STOPS, Comparison, Verdict
from tests.breadth.functions import calls

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sail.md"
MARK = "<!-- from here on written by tests/breadth/sail_page.py -->\n"
EACH = 8  # calls of a function
COLUMNS = 100  # of a line of prose
_WHY = re.compile(r"(.*?), so this view can't be maintained", re.DOTALL)
_NUMBER = re.compile(r"_[12]\b")


def page(verdicts: Iterable[Verdict]) -> str:
    """The page with its lists written anew."""
    head, _, _ = PAGE.read_text().partition(MARK)
    by_verdict: dict[str, dict[str, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    called: dict[str, int] = defaultdict(int)
    for one in verdicts:
        by_verdict[one.verdict][one.call.function].append(one)
        called[one.call.function] += one.verdict != "no view"
    assert not by_verdict[DIFFERS]
    lines = [head + MARK, "## Refused", "", "| | because | for example |", "|---|---|---|"]
    for function, found in sorted(by_verdict[REFUSED].items()):
        for why, example in sorted({_why(one): one for one in reversed(found)}.items()):
            lines.append(_row(function, why, f"`{_shown(example)}`"))
    lines += ["", "## Stops where Spark has an answer", ""]
    lines += ["| | for example | at |", "|---|---|---|"]
    of_bytes = []
    for function, found in sorted(by_verdict[STOPS].items()):
        plain = [one for one in found if "bin_" not in one.call.text]
        if plain:
            lines.append(_row(function, f"`{_shown(plain[0])}`", _at(plain[0])))
        else:
            of_bytes.append(function)
    lines += ["", _wrapped(f"And at bytes that are not UTF-8: {', '.join(of_bytes)}."), ""]
    lacking = by_verdict[LACKING]
    whole = [name for name, found in sorted(lacking.items()) if len(found) == called[name]]
    partly = {name: found for name, found in sorted(lacking.items()) if name not in whole}
    lines += ["## Not on Sail", "", _wrapped(f"{', '.join(whole)}."), ""]
    lines += ["And of some types:", "", "| | for example |", "|---|---|"]
    lines += [_row(name, f"`{_shown(found[0])}`") for name, found in partly.items()]
    return "\n".join([*lines, ""])


def _wrapped(text: str) -> str:
    return fill(text, COLUMNS, break_long_words=False, break_on_hyphens=False)


def _why(verdict: Verdict) -> str:
    found = _WHY.match(verdict.detail)
    return found[1] if found else verdict.detail


def _shown(verdict: Verdict) -> str:
    """A call with its columns named by their kinds only."""
    return _NUMBER.sub("", verdict.call.text)


def _at(verdict: Verdict) -> str:
    return _NUMBER.sub("", verdict.detail.rpartition(": Spark")[0])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    compared = Comparison(start("spark"), start("sail"))
    PAGE.write_text(page(compared.verdicts(calls(compared.spark, EACH))))
