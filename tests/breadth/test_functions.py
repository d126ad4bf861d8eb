"""No function has another answer on Sail than on Spark, for arguments that hurt: it has the same,
or stops the view, or is refused there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everview as ev
from everview.engines.engine import Engine
from tests.breadth.comparing import DIFFERS, EQUAL, REFUSED, Comparison, Verdict
from tests.breadth.functions import Call, calls
from tests.breadth.sail_page import EACH

STEP = 40  # of the functions, where not all are asked for
# of what Sail's own answer is another, for some value: how it is asked now
SAME = [
    *("int_1 + int_2", "long_1 * 2L", "byte_1 - byte_2", "- long_1", "CAST(long_1 AS INT) > 5"),
    *("timestamp_millis(long_1)", "timestamp_seconds(long_1)", "split(str_1, 'b')"),
    *("sign(double_1)", "greatest(double_1, double_2)", "least(float_1, float_2, 0.0F)"),
    *("round(double_1, 1)", "round(double_1)", "atan2(double_1, double_2)", "get(ints_1, few_1)"),
    *("CAST(ts_1 AS BIGINT)", "elt(int_1, str_1, str_2)", "hash(long_1, str_1)"),
    *("rint(double_1)", "rint(dec_1)", "rint(double_1 / 2)", "pmod(int_1, 7)"),
    *("try_parse_url(str_1, 'HOST')", "levenshtein(str_1, str_2)"),
    *("slice(ints_1, few_1, 2)", "split_part(str_1, 'b', few_1)", "unix_seconds(ts_1)"),
    *("unix_millis(ts_1)", "width_bucket(2, 1, 3, long_1)"),
    *("array_contains(array(1, 2), int_1)", "arrays_overlap(ints_1, ints_2)"),
]
REFUSALS = [
    *(
        "hash(dec_1)",
        "conv(str_1, 10, 16)",
        "big_1 / 3",
        "map(str_1, 1, str_2, 2)",
    ),
    *("timestamp_seconds(dec_1)", "shiftrightunsigned(byte_1, 1)", "try_to_number(str_1, '000')"),
    *("pmod(double_1, 3)", "make_dt_interval(1, long_1)", "parse_url(str_1, 'HOST')"),
    *("bround(dec_1, 1)", "initcap(str_1)", "substring(bin_1, 1, 1)", "CAST(ints_1 AS STRING)"),
]
STOPPED = [
    "big_1 + big_2",
    "split(str_1, str_2)",
    "date_trunc('YEAR', ts_1)",
    "trunc(date_1, 'MM')",
    "levenshtein(str_1, str_2, int_1)",
    "try_make_timestamp(int_1, 12, 28, 6, 30, 45)",
]


@pytest.fixture(scope="module")
def comparison(spark: Engine, sail: Engine) -> Comparison:
    return Comparison(spark, sail)


def verdicts(comparison: Comparison, texts: list[str]) -> dict[str, str]:
    found = comparison.verdicts(Call("", text) for text in texts)
    return {one.call.text: one.verdict for one in found}


def test_what_hurts_is_as_on_spark_or_is_not_answered(comparison: Comparison) -> None:
    assert verdicts(comparison, SAME) == dict.fromkeys(SAME, EQUAL)
    assert verdicts(comparison, REFUSALS) == dict.fromkeys(REFUSALS, REFUSED)
    assert DIFFERS not in verdicts(comparison, STOPPED).values()


def test_every_function_is_as_on_spark_or_is_not_answered(
    comparison: Comparison, request: pytest.FixtureRequest
) -> None:
    is_long = request.config.getoption("--long")
    asked = calls(comparison.spark, EACH) if is_long else calls(comparison.spark, 1, STEP)
    found = list(comparison.verdicts(asked))
    assert len(found) > 20
    assert wrong(found) == []


def wrong(found: list[Verdict]) -> list[str]:
    return [f"{one.call.text}: {one.detail}" for one in found if one.verdict == DIFFERS]


@pytest.fixture
def db(sail: Engine, tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "refused.ev", create=True) as database:
        database.engines.use(sail)
        database.sql("CREATE TABLE t (k BIGINT PRIMARY KEY, b STRING, l BIGINT)")
        yield database


def test_a_view_that_is_refused_on_sail_stops_alone_and_runs_on_spark(
    db: ev.Database, spark: Engine
) -> None:
    db.sql("CREATE MATERIALIZED VIEW v AS SELECT k, conv(b, 10, 16) AS c FROM t WHERE l > 0")
    db.sql("CREATE MATERIALIZED VIEW w AS SELECT k FROM t WHERE conv(b, 10, 16) = 'C'")
    db.sql("CREATE MATERIALIZED VIEW x AS SELECT count(*) AS n FROM t")
    db.table("t").put({"k": 1, "b": " 12 ", "l": 1})
    failed = db.maintain().failed
    assert set(failed) == {"v", "w"}
    assert all("Sail gives NULL" in why and "engine spark" in why for why in failed.values())
    assert db.view("x").to_arrow().to_pylist() == [{"n": 1}]
    db.engines.use(spark)
    db.rebuild("v")
    assert db.view("v").to_arrow().to_pylist() == [{"k": 1, "c": "C"}]


def test_a_view_made_anew_is_refused_on_sail_if_its_query_may_differ(db: ev.Database) -> None:
    full = "CREATE MATERIALIZED VIEW {} WITH (refresh = 'full') AS {}"
    db.sql(full.format("sums", "SELECT k, l + 1 AS s FROM t OFFSET 0"))
    db.sql(full.format("rows", "SELECT k, b FROM t OFFSET 0"))
    db.table("t").put({"k": 1, "b": "x", "l": 2**63 - 1})
    assert set(db.maintain().failed) == {"sums"}
    assert db.view("rows").to_arrow().to_pylist() == [{"k": 1, "b": "x"}]
