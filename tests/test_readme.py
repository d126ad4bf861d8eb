"""The README's example does what the README says it does."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from everview.engines.engine import Engine

README = Path(__file__).parents[1] / "README.md"


def test_the_example_prints_what_the_readme_shows(
    spark: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, shown = re.findall(r"```(?:python)?\n(.*?)```", README.read_text(), re.DOTALL)[:2]
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(README), "exec"), {})
    assert printed.getvalue() == shown
