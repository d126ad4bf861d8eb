"""What random queries have found: each case, small, for ever.

`OPEN` are those that are not mended yet; one that is right must move to `FOUND`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from everview.engines.engine import Engine

from .cases import Case, run_case
from .tables import Change, Table
from .tree import Written

T = Table("t", (("k", "INT"), ("d", "DOUBLE"), ("s", "STRING")), ("k",))
SOME = Change("t", put=({"k": 1, "d": 0.5, "s": "a"}, {"k": 2, "d": None, "s": None}))
NOTHING = Change("t", delete=(7,))

FOUND = {
    "join_on_doubles": Case(
        (T,), (SOME,), (Written("SELECT a.k FROM t a JOIN t b ON a.d = b.d"),), 1
    ),
    "row_to_blame_in_no_rows": Case(
        (T,), (NOTHING,), (Written("SELECT a.k FROM t a JOIN t b ON a.d = b.d"),), 1
    ),
    "first_by_what_is_not_shown": Case(
        (T,), (SOME,), (Written("SELECT s FROM t ORDER BY k DESC LIMIT 1"),), 1
    ),
    "listagg_distinct_with_filter": Case(
        (T,),
        (SOME,),
        (
            Written(
                "SELECT listagg(DISTINCT s, '|') WITHIN GROUP (ORDER BY s) FILTER (WHERE k > 0) "
                "AS c FROM t",
                "SELECT string_agg(DISTINCT s, '|' ORDER BY s) FILTER (WHERE k > 0) AS c FROM t",
            ),
        ),
        1,
    ),
    "listagg_distinct_descending": Case(
        (T,),
        (SOME, Change("t", put=({"k": 3, "d": 1.5, "s": "b"}, {"k": 4, "d": 1.5, "s": "a"}))),
        (
            Written(
                "SELECT listagg(DISTINCT s, '|') WITHIN GROUP (ORDER BY s DESC) AS c FROM t",
                "SELECT string_agg(DISTINCT s, '|' ORDER BY s DESC) AS c FROM t",
            ),
        ),
        1,
    ),
    "bit_xor_of_distinct_values": Case(
        (T,),
        (SOME, Change("t", put=({"k": 3, "d": 1.5, "s": "a"},)), Change("t", delete=(1, 2, 3))),
        (
            Written(
                "SELECT bit_xor(DISTINCT CAST(d AS TINYINT)) AS c FROM t",
                "SELECT bit_xor(DISTINCT CAST(trunc(d) AS TINYINT)) AS c FROM t",
            ),
        ),
        1,
    ),
    "listagg_by_its_own_values": Case(
        (T,),
        (SOME,),
        (
            Written(
                "SELECT listagg(s, '|') WITHIN GROUP (ORDER BY s DESC) AS c FROM t",
                "SELECT string_agg(s, '|' ORDER BY s DESC) AS c FROM t",
            ),
        ),
        1,
    ),
    "constant_by_touched_group_without_rows": Case(
        (T,), (NOTHING,), (Written("SELECT bit_and(7) AS b, min(k) AS k FROM t"),), 1
    ),
    "grouped_twice_by_one_column": Case(
        (T,), (SOME,), (Written("SELECT s AS a, s AS b, count(*) AS n FROM t GROUP BY a, b"),), 1
    ),
    "nothing_is_needed_of_touched_groups": Case(
        (T,),
        (SOME,),
        (
            Written(
                "SELECT DISTINCT w.s, w.b FROM t LEFT JOIN (SELECT s, bit_xor(k) AS b FROM t GROUP "
                "BY s HAVING bool_or('' LIKE 'a') <= false) w ON t.k > 0",
            ),
        ),
        1,
    ),
}
OPEN: dict[str, Case] = {}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_was_found_is_right_now(case: Case, sail: Engine, tmp_path: Path) -> None:
    assert run_case(case, sail, tmp_path / "found.ev").failures == []


@pytest.mark.parametrize("case", OPEN.values(), ids=OPEN)
@pytest.mark.xfail(strict=True, reason="found, and not mended yet")
def test_what_is_open(case: Case, sail: Engine, tmp_path: Path) -> None:
    assert run_case(case, sail, tmp_path / "open.ev").failures == []
