"""A bank: transfers that are made, corrected and taken back, and views that must always balance.

Run as a program it is a reader: python bank.py DB PINS HISTORY. Through every pin it reads several
views; what does not balance is printed, and then how many pins there were and of how many epochs. A
sample of its first reads is recorded: as much as the checker decides in seconds.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

import everview as ev
from everview.check import Recorder

if TYPE_CHECKING:
    from .books import Books

ACCOUNTS = 200
BRANCHES = 7
SAMPLED, RECORDED = 25, 2000  # one in 25 of a reader's first 2000 pins is recorded
SCANNED = 2500  # later on, one in so many also reads the table, which grows all the time
ALL_BALANCES = 10  # one in so many also reads the view with a row for each account
_MOVES = """(SELECT to_account AS account, amount FROM transfers
    UNION ALL SELECT from_account, -amount FROM transfers)"""
VIEWS = {
    "credits": """SELECT branch, sum(amount) AS credit, count(*) AS transfers
        FROM transfers JOIN accounts ON to_account = accounts.id GROUP BY branch""",
    "debits": """SELECT branch, sum(amount) AS debit, count(*) AS transfers
        FROM transfers JOIN accounts ON from_account = accounts.id GROUP BY branch""",
    "balances": f"SELECT account, sum(amount) AS balance FROM {_MOVES} GROUP BY account",
    "total": f"SELECT sum(amount) AS total, count(*) AS moves FROM {_MOVES}",
}

FEW = [name for name in VIEWS if name != "balances"]


def create(path: str, books: Books | None = None, **options: Any) -> ev.Database:
    db = ev.open(path, create=True, **options)
    db.sql("CREATE TABLE accounts (id INT PRIMARY KEY, branch INT)")
    db.sql("CREATE TABLE transfers (id BIGINT PRIMARY KEY, from_account INT, to_account INT, "
           "amount DECIMAL(12,2))")  # fmt: skip
    accounts = [{"id": i, "branch": i % BRANCHES} for i in range(ACCOUNTS)]
    (books or ev.Table).put(db.table("accounts"), accounts)
    for name, query in VIEWS.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    return db


def transfer(chance: random.Random, number: int) -> dict[str, Any]:
    one, other = chance.sample(range(ACCOUNTS), 2)
    amount = Decimal(chance.randrange(1, 100_000)) / 100
    return {"id": number, "from_account": one, "to_account": other, "amount": amount}


def work(
    db: ev.Database, chance: random.Random, made: int, count: int, books: Books | None = None
) -> int:
    """So many changes after the first `made` transfers; returns how many there are then."""
    new = [transfer(chance, made + i) for i in range(count * 3 // 5)]
    corrected = [transfer(chance, n) for n in chance.sample(range(made + 1), min(made, count // 5))]
    transfers, writer = db.table("transfers"), books or ev.Table
    writer.put(transfers, new + corrected)
    writer.delete(transfers, [chance.randrange(made + 1) for _ in range(count // 5)])
    return made + len(new)


def faults(
    db: ev.Database,
    with_table: bool = True,
    seen: Recorder | None = None,
    views: Iterable[str] = VIEWS,
) -> tuple[int, list[str]]:
    """The epoch that is committed now, and what does not balance in it: credits, debits and their
    total, and what else is named."""
    began = Recorder.now()
    with db.pin(*views, *["transfers"] * with_table) as at:
        found = {name: at.view(name).to_arrow() for name in views}
        if seen is not None:
            for name, rows in found.items():
                seen.read(name, at.epoch, rows.to_pylist(), began=began)
        credit, debit, total = found["credits"], found["debits"], found["total"]
        moved, moves = _sum(credit["credit"]), _sum(credit["transfers"])
        wanted: dict[str, tuple[Any, Any]] = {
            "debits": (_sum(debit["debit"]), moved),
            "debited": (_sum(debit["transfers"]), moves),
            "total": (total["total"][0].as_py() or 0, 0),
            "moves": (total["moves"][0].as_py(), 2 * moves),
        }
        if "balances" in found:
            wanted["balances"] = (_sum(found["balances"]["balance"]), 0)
        if with_table:
            transfers = at.table("transfers").to_arrow(columns=["amount"])
            wanted["transfers"] = (transfers.num_rows, moves)
            wanted["transferred"] = (_sum(transfers["amount"]), moved)
        return at.epoch, [
            f"epoch {at.epoch}: {name} is {found}, not {right}"
            for name, (found, right) in wanted.items()
            if found != right
        ]


def differences(db: ev.Database, view: str) -> tuple[int, int, int]:
    """Transfers that a copy of the table lacks, has twice, or has as they were at another time."""
    with db.pin(view, "transfers") as at:
        table, copy = (
            one.to_arrow().sort_by("id") for one in (at.table("transfers"), at.view(view))
        )
    if copy.equals(table):
        return 0, 0, 0
    rows, found = {row["id"]: row for row in table.to_pylist()}, Counter(copy["id"].to_pylist())
    lost = len(rows.keys() - found.keys())
    twice = sum(count - 1 for count in found.values())
    return lost, twice, sum(rows.get(row["id"]) != row for row in copy.to_pylist())


def verified(db: ev.Database) -> tuple[int, int]:
    """How many rows all views lack, and have too much, when recomputed."""
    verdicts = [db.verify(name) for name in db.views()]
    missing = sum(sum(verdict.missing.values()) for verdict in verdicts)
    extra = sum(sum(verdict.extra.values()) for verdict in verdicts)
    assert (missing + extra == 0) == all(verdict.equal for verdict in verdicts)
    return missing, extra


def _sum(column: pa.ChunkedArray) -> Any:
    return pc.sum(column).as_py() or 0


def read(path: str, pins: int, history: str) -> None:
    epochs = set()
    with ev.open(path, readonly=True) as db, Recorder(history) as seen:
        while not db.view("total").is_loaded:
            pass
        for number in range(pins):
            sampled = number < RECORDED and number % SAMPLED == 0
            with_table = sampled or number % SCANNED == 0
            views = VIEWS if sampled or number % ALL_BALANCES == 0 else FEW
            epoch, wrong = faults(db, with_table, seen if sampled else None, views)
            epochs.add(epoch)
            for line in wrong:
                print(line, flush=True)
    print(f"{pins} pins of {len(epochs)} epochs", flush=True)


if __name__ == "__main__":
    read(sys.argv[1], int(sys.argv[2]), sys.argv[3])
