"""A member of a view with parameters reads like a view, and reads its own rows only."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest

import everview as ev
from everview.engines.engine import Engine
from everview.errors import DataError, EverviewError, UnsupportedSql

LONG = "x" * 700
REGIONS = ["EU", "", "it's ü", "EU\0", LONG, LONG + "y"]
TODAY = dt.date(2026, 1, 1)


@pytest.fixture(scope="module")
def made(sail: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ev.Database]:
    with ev.open(tmp_path_factory.mktemp("member") / "shop.ev", create=True) as db:
        db.engines.use(sail)
        db.sql("CREATE TABLE orders (id INT PRIMARY KEY, region STRING, day DATE, amount INT)")
        db.sql(
            "CREATE MATERIALIZED VIEW spend (region STRING, since DATE) AS SELECT day, sum(amount) "
            "AS total FROM orders WHERE region = :region AND day >= :since GROUP BY day"
        )
        db.sql(
            "CREATE MATERIALIZED VIEW counts (n INT) AS SELECT count(*) AS c FROM orders "
            "WHERE amount < :n"
        )
        db.sql("CREATE MATERIALIZED VIEW twice (n INT) AS SELECT amount FROM orders WHERE id > :n")
        db.sql("CREATE VIEW plain AS SELECT * FROM orders")
        db.table("orders").put(
            [
                {
                    "id": i,
                    "region": REGIONS[i % 6],
                    "day": day(i // 6),
                    "amount": i,
                }
                for i in range(60)
            ]
        )
        spend = db.view("spend")
        spend.members.put([{"region": r, "since": day(n)} for r in REGIONS for n in range(3)])
        db.view("counts").members.put([{"n": 10}, {"n": -1}])
        db.view("twice").members.put([{"n": 50}])
        db.maintain()
        yield db


def day(number: int) -> dt.date:
    return TODAY + dt.timedelta(number % 4)


@pytest.mark.parametrize("region", REGIONS)
def test_a_member_has_its_rows_without_the_parameters(made: ev.Database, region: str) -> None:
    view = made.view("spend")
    for since in map(day, range(3)):
        member = view.member(region, since=since)
        expected = {
            row["day"]: row["total"]
            for row in view.scan()
            if (row["region"], row["since"]) == (region, since)
        }
        assert len(expected) == 4 - (since - TODAY).days
        assert {row["day"]: row["total"] for row in member.scan()} == expected
        assert (len(member), member.is_there) == (len(expected), True)
        assert (
            member.to_arrow().schema
            == member.schema
            == pa.schema([pa.field("day", pa.date32()), pa.field("total", pa.int64())])
        )
        for at, total in expected.items():
            assert member.get(at) == member.get((at,)) == {"day": at, "total": total}
        assert member.get(dt.date(1999, 1, 1)) is None
        assert len(member.to_pandas()) == len(member.to_polars()) == len(expected)
    assert (member.key, member.epoch, member.status) == (("day",), view.epoch, "live")
    assert member.freshness == dt.timedelta(0)


def test_a_member_of_one_row_is_read_without_a_key(made: ev.Database) -> None:
    counts = made.view("counts")
    assert counts.member(10).get() == {"c": 10}
    assert counts.member(n=-1).get() == {"c": 0}
    assert counts.member(11).get() is None
    with pytest.raises(DataError, match="has no columns"):
        counts.member(10).get(1)


def test_a_value_that_is_no_member(made: ev.Database) -> None:
    member = made.view("spend").member("nowhere", TODAY)
    assert (list(member.scan()), member.is_there) == ([], False)
    assert str(member) == (
        "<view spend for region = 'nowhere', since = datetime.date(2026, 1, 1), which is no member>"
    )


@pytest.mark.parametrize(
    ("values", "named", "reason"),
    [
        (("EU",), {}, "the parameters region, since; give a value for each"),
        (("EU", TODAY, 1), {}, "the parameters region, since"),
        (("EU", TODAY), {"since": TODAY}, "the parameters region, since"),
        (("EU",), {"day": TODAY}, "the parameters region, since"),
        (("EU", 5), {}, "column since: 5 is not a DATE"),
        ((None, TODAY), {}, "column region: NULL"),
    ],
)
def test_values_that_do_not_fit(
    made: ev.Database, values: tuple[object, ...], named: dict[str, object], reason: str
) -> None:
    with pytest.raises(EverviewError, match=reason):
        made.view("spend").member(*values, **named)


def test_a_view_without_parameters_has_no_members(made: ev.Database) -> None:
    with pytest.raises(UnsupportedSql, match="has no parameters"):
        made.view("plain").member(1)
    assert made.view("plain").parameters == ()


def test_rows_that_are_there_twice(made: ev.Database) -> None:
    rows = [{"id": 100 + n, "region": "twice", "day": None, "amount": 7} for n in range(3)]
    made.table("orders").put(rows)
    made.maintain()
    assert [row["amount"] for row in made.view("twice").member(50).scan()].count(7) == 3


def test_a_member_in_a_pin_and_its_changes(made: ev.Database) -> None:
    view = made.view("spend")
    start = view.register("reader")
    with made.pin() as pin:
        made.table("orders").put([{"id": 0, "region": "EU", "day": TODAY, "amount": 1000}])
        made.table("orders").put([{"id": 1, "region": "", "day": TODAY, "amount": 1000}])
        made.maintain()
        assert pin.view("spend").member("EU", TODAY).get(TODAY)["total"] < 1000
        assert view.member("EU", TODAY).get(TODAY)["total"] >= 1000
    (changes,) = view.member("EU", TODAY).changes(start)
    assert [row["after"]["region"] for row in changes.to_pylist()] == ["EU"]
    view.unregister("reader")
