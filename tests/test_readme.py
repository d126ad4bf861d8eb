"""The README's example does what the README says it does."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from everview.engines.engine import Engine

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_example_prints_what_the_readme_shows(
    spark: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = BLOCK.findall(README.read_text())
    (at,) = [place for place, (language, _) in enumerate(blocks) if language == "python"]
    (_, code), (_, shown) = blocks[at : at + 2]
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    assert printed.getvalue() == shown
