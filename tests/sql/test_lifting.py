"""Which constants of a query become parameters."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from everview.sql.lifting import MOST, lifted


@pytest.mark.parametrize(
    ("condition", "text", "values"),
    [
        ("a = 5", "a = :value_1", [5]),
        ("5 < a", ":value_1 < a", [5]),
        ("a <> 'x y'", "a <> :value_1", ["x y"]),
        ('a >= "x"', "a >= :value_1", ["x"]),
        ("a < -2.50", "a < -:value_1", [Decimal("2.50")]),
        ("d >= DATE '2026-01-02'", "d >= :value_1", [date(2026, 1, 2)]),
        ("d < DATE'2026-01-02' + INTERVAL 1 YEAR", "d < :value_1 + INTERVAL 1 YEAR",
         [date(2026, 1, 2)]),
        ("a BETWEEN 0.06 - 0.01 AND 7", "a BETWEEN :value_1 - :value_2 AND :value_3",
         [Decimal("0.06"), Decimal("0.01"), 7]),
        ("a IN (1, 2) AND NOT (b > 3 OR c = 'z')",
         "a IN (:value_1, :value_2) AND NOT (b > :value_3 OR c = :value_4)", [1, 2, 3, "z"]),
        ("a + 1 > 4 * 2", "a + 1 > :value_1 * :value_2", [4, 2]),
        ("value_1 = 1", "value_1 = :_value_1", [1]),
        ("a = 3 /* here */ GROUP BY 1 HAVING sum(b) > 10 ORDER BY 1 LIMIT 2",
         "a = :value_1 /* here */ GROUP BY 1 HAVING sum(b) > :value_2 ORDER BY 1 LIMIT 2", [3, 10]),
    ],
)  # fmt: skip
def test_a_constant_that_is_compared_becomes_a_parameter(
    condition: str, text: str, values: list[object]
) -> None:
    found = lifted(f"SELECT a FROM t WHERE {condition}")
    assert found is not None
    assert found.text == f"SELECT a FROM t WHERE {text}"
    assert list(found.values) == values


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a + 5 FROM t LIMIT 3",
        "SELECT a FROM t WHERE 1 = 1",
        "SELECT a FROM t WHERE a LIKE 'x%' OR a = b + 1 OR a RLIKE 'x'",
        "SELECT a FROM t WHERE a = 5L OR a = 1e3 OR a = .5 OR a = 5.",
        "SELECT a FROM t WHERE a = 'it''s' OR a = 'a\\nb' OR a = r'x' OR a = X'1F'",
        "SELECT a FROM t WHERE a = DATE '2026-02-30' OR a = TIMESTAMP '2026-01-01 00:00:00'",
        "SELECT a FROM t WHERE coalesce(a, 5) = b OR a = abs(-4) OR a <=> 3 OR a = NULL",
        "SELECT a FROM t WHERE CASE WHEN a > 5 THEN true END",
        "SELECT a FROM t WHERE a = (SELECT max(b) FROM u WHERE b < 5)",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = 5)",
        "SELECT a FROM t WHERE a > 5 UNION ALL SELECT a FROM t",
        f"SELECT a FROM t WHERE a IN ({', '.join(map(str, range(MOST + 1)))})",
        "VALUES (1)",
        "SELECT a FROM WHERE a = 5",
    ],
)
def test_others_stay(query: str) -> None:
    assert lifted(query) is None


def test_queries_inside_from_and_with_are_part_of_the_query() -> None:
    found = lifted(
        "WITH m AS (SELECT a FROM t WHERE a > 5) SELECT * FROM m JOIN (SELECT b FROM u WHERE b < "
        "7) x ON x.b = m.a AND m.a <> 9"
    )
    assert found is not None
    assert found.values == (5, 7, 9)


def test_numbers_that_are_compared_as_they_stand_have_wide_types() -> None:
    """So 24 and 3,000,000,000 are of one family, and 0.05 and 100.25."""
    tokens = {
        one.tokens
        for n in ("24", "3000000000")
        if (one := lifted(f"SELECT a FROM t WHERE a < {n}"))
    }
    assert len(tokens) == 1
    (parameter,) = lifted("SELECT a FROM t WHERE a < 0.05").parameters  # type: ignore[union-attr]
    assert parameter.type == pa.decimal128(18, 2)
    (one, other) = lifted("SELECT a FROM t WHERE a < 0.05 + 12.5").parameters  # type: ignore[union-attr]
    assert (one.type, other.type) == (pa.decimal128(2, 2), pa.decimal128(3, 1))


def test_white_space_and_comments_make_no_difference_but_words_do() -> None:
    def tokens(query: str) -> str:
        found = lifted(query)
        assert found is not None
        return found.tokens

    query = "SELECT a FROM t WHERE a = 5 AND b = 'x'"
    assert tokens(query) == tokens("SELECT a\n FROM t -- here\nWHERE a=7 AND b = 'y'")
    assert tokens(query) != tokens("SELECT a FROM t WHERE a = 5 AND b = 6")
    assert tokens(query) != tokens("SELECT `A` FROM t WHERE a = 5 AND b = 'x'")
    assert tokens(query) != tokens("SELECT a FROM t WHERE a = 5 AND b = '2026-01-01'")


def test_texts_that_are_dates_are_known() -> None:
    found = lifted("SELECT a FROM t WHERE d >= '2026-01-01' AND e = 'x' AND f = '2026-02-30'")
    assert found is not None
    assert found.days == {"value_1"}
