"""What random queries have found: each case, small, for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from everview.run.engine import Engine

from .cases import Case, run_case

FOUND: dict[str, Case] = {}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_was_found_is_right_now(case: Case, sail: Engine, tmp_path: Path) -> None:
    assert run_case(case, sail, tmp_path / "found.ev").failures == []
