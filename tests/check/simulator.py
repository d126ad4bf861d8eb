"""A small maintainer in memory, with its readers, that records a history of what happens.

Two tables in regions with logs; the view `cities`, a join and then a sum, and the view `customers`,
a count; operators in shards with an outbox, sinks with the new and the previous row, epochs with
intent and token, crashes, maintainers that were superseded and wake up, readers that pin an epoch.
The order of all steps is random. Each name in BUGS is a switch that breaks one thing.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from everview.check import Commit, Definition, History, Read, Write

BUGS = [
    "skip the outbox",
    "apply twice",
    "commit before a shard is done",
    "ignore the token",
    "trim too early",
    "swap two versions of a key",
    "drop a delete",
    "read new rows before commit",
    "forget one region's range",
    "lose a group's last delete",
]
REGIONS = {"orders": 3, "homes": 2}
SHARDS = 2
CITIES = """SELECT city, sum(amount) AS total, count(*) AS n
FROM orders JOIN homes USING (customer) GROUP BY city"""
CUSTOMERS = "SELECT customer, count(*) AS n FROM orders GROUP BY customer"

Row = dict[str, Any]
Weighted = tuple[Any, Row, int]


def cities(tables: Any) -> list[Row]:
    """CITIES as a function."""
    homes = {home["customer"]: home["city"] for home in tables.get("homes", ())}
    sums: defaultdict[str, list[int]] = defaultdict(list)
    for order in tables.get("orders", ()):
        if order["customer"] in homes:
            sums[homes[order["customer"]]].append(order["amount"])
    return [{"city": city, "total": sum(of), "n": len(of)} for city, of in sums.items()]


def customers(tables: Any) -> list[Row]:
    """CUSTOMERS as a function."""
    counts = Counter(order["customer"] for order in tables.get("orders", ()))
    return [{"customer": customer, "n": n} for customer, n in counts.items()]


VIEWS = [Definition("cities", cities, ("city",)), Definition("customers", customers, ("customer",))]
SQL_VIEWS = [
    Definition("cities", CITIES, ("city",)),
    Definition("customers", CUSTOMERS, ("customer",)),
]


class Shard:
    """Applies an epoch once; asked again for the same epoch it answers from its outbox."""

    def __init__(self, bug: str | None) -> None:
        self.bug = bug
        self.applied = 0
        self.outbox: list[Weighted] = []

    def run(self, epoch: int, delta: list[Weighted]) -> list[Weighted]:
        if self.applied == epoch and self.bug != "apply twice":
            return [] if self.bug == "skip the outbox" else self.outbox
        self.outbox = self.compute(delta)
        self.applied = epoch
        return self.outbox

    def compute(self, delta: list[Weighted]) -> list[Weighted]:
        raise NotImplementedError


class Join(Shard):
    """Orders with the city of their customer."""

    def __init__(self, bug: str | None) -> None:
        super().__init__(bug)
        self.orders: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self.homes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def compute(self, delta: list[Weighted]) -> list[Weighted]:
        out: list[Weighted] = []
        for table, row, weight in delta:
            customer = row["customer"]
            if table == "orders":
                pairs = [(row["amount"], city, n) for city, n in self.homes[customer].items()]
                self.orders[customer][row["amount"]] += weight
            else:
                pairs = [(amount, row["city"], n) for amount, n in self.orders[customer].items()]
                self.homes[customer][row["city"]] += weight
            out += [("", {"city": c, "amount": a}, weight * n) for a, c, n in pairs]
        return out


class Sum(Shard):
    """Groups with their sums and counts; emits each touched group's row, weight 0 if it is gone."""

    def __init__(self, bug: str | None, group: str) -> None:
        super().__init__(bug)
        self.group = group
        self.sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])

    def compute(self, delta: list[Weighted]) -> list[Weighted]:
        for _, row, weight in delta:
            group = self.sums[row[self.group]]
            group[0] += weight * row["amount"]
            group[1] += weight
        touched = dict.fromkeys(row[self.group] for _, row, _ in delta)
        return [("", self.row(name), self.sums[name][1]) for name in touched if self.emits(name)]

    def emits(self, group: str) -> bool:
        return bool(self.sums[group][1]) or self.bug != "lose a group's last delete"

    def row(self, name: str) -> Row:
        total, count = self.sums[name]
        return {self.group: name, "n": count} | ({"total": total} if self.group == "city" else {})


@dataclass
class Sink:
    """View rows, each with its epoch, the new and the previous one."""

    group: str
    rows: dict[str, tuple[int, Row | None, Row | None]] = field(default_factory=dict)

    def write(self, epoch: int, changes: list[Weighted]) -> None:
        for _, row, weight in changes:
            at, new, previous = self.rows.get(row[self.group], (0, None, None))
            kept = previous if at == epoch else new
            self.rows[row[self.group]] = (epoch, row if weight else None, kept)

    def read(self, epoch: int, early: bool) -> list[Row] | None:
        """The rows of an epoch; None if a newer one has replaced them."""
        if any(at > epoch + 1 for at, _, _ in self.rows.values()):
            return None
        rows = [new if early or at <= epoch else old for at, new, old in self.rows.values()]
        return [row for row in rows if row is not None]


class Simulation:
    """A run of `steps` random steps, and then epochs until nothing is pending."""

    def __init__(self, seed: int, steps: int = 60, bug: str | None = None) -> None:
        self.random = random.Random(seed)
        self.bug = bug
        self.timed = self.random.random() < 0.5
        self.history = History()
        self.clock = 0.0
        self.tables: dict[str, dict[Any, Row]] = {table: {} for table in REGIONS}
        self.logs: dict[tuple[str, int], list[tuple[int, Any, Row | None, Row | None]]] = {
            (table, region): [] for table, count in REGIONS.items() for region in range(count)
        }
        self.lasts = dict.fromkeys(self.logs, 0)
        self.joins = [Join(bug) for _ in range(SHARDS)]
        self.sums = {
            view: [Sum(bug, group) for _ in range(SHARDS)]
            for view, group in (("cities", "city"), ("customers", "customer"))
        }
        self.sinks = {view: Sink(shards[0].group) for view, shards in self.sums.items()}
        self.token = self.committed = 0
        self.positions = dict.fromkeys(self.logs, 0)
        self.intent: tuple[int, dict[tuple[str, int], int]] | None = None
        self.maintainer: Iterator[None] | None = None
        self.sleepers: list[Iterator[None]] = []
        self.pins: dict[str, tuple[int, float]] = {}
        self.record_commit()
        for _ in range(steps):
            self.step()
        self.settle()

    def step(self) -> None:
        what = self.random.choices(
            (self.write, self.maintain, self.crash, self.wake, self.read, self.pin),
            (5, 12, 1, 1, 4, 1),
        )[0]
        what()

    def settle(self) -> None:
        while self.maintainer or self.intent or self.positions != self.lasts:
            self.maintain()
        for sleeper in self.sleepers:
            list(sleeper)
        self.read("ann")

    def write(self) -> None:
        began = self.now()
        if self.random.random() < 0.3:
            customer = self.random.choice("ab")
            table, key, row = "homes", customer, {"customer": customer}
            row["city"] = self.random.choice(["Rome", "Oslo"])
        else:
            table, key = "orders", self.random.randrange(6)
            row = {"id": key, "customer": self.random.choice("ab")}
            row["amount"] = self.random.randrange(1, 9)
        deletes = key in self.tables[table] and self.random.random() < 0.4
        after = None if deletes else row
        region = sum(map(ord, str(key))) % REGIONS[table]
        log = self.logs[table, region]
        self.lasts[table, region] += 1
        log.append((self.lasts[table, region], key, self.tables[table].pop(key, None), after))
        if after is not None:
            self.tables[table][key] = after
        times = (began, self.now()) if self.timed else (None, None)
        sequence = self.lasts[table, region]
        self.history.writes.append(Write(table, (key,), after, region, sequence, *times))

    def maintain(self) -> None:
        """One step of the maintainer."""
        if self.maintainer is None:
            self.token += 1
            self.maintainer = self.epoch(self.token)
        if next(self.maintainer, self) is self:
            self.maintainer = None

    def crash(self) -> None:
        """The maintainer dies, or only sleeps while another takes over."""
        if self.maintainer is not None and self.random.random() < 0.5:
            self.sleepers.append(self.maintainer)
        self.maintainer = None

    def wake(self) -> None:
        if self.sleepers:
            sleeper = self.random.choice(self.sleepers)
            next(sleeper, None)

    def epoch(self, token: int) -> Iterator[None]:
        if self.intent is None:
            if self.positions == self.lasts:
                return
            self.intent = (self.committed + 1, dict(self.lasts))
        (number, end), start = self.intent, dict(self.positions)
        yield
        delta = self.changes(start, end)
        joined: list[Weighted] = []
        for n, join in enumerate(self.joins):
            yield
            if not self.holds(token):
                return
            joined += join.run(number, [d for d in delta if shard_of(d[1]["customer"]) == n])
        orders = [d for d in delta if d[0] == "orders"]
        tasks = [
            (view, n, [d for d in given if shard_of(d[1][self.sinks[view].group]) == n])
            for view, given in (("cities", joined), ("customers", orders))
            for n in range(SHARDS)
        ]
        self.random.shuffle(tasks)
        last = len(tasks) - 1 if self.bug == "commit before a shard is done" else len(tasks)
        for place, (view, n, part) in enumerate(tasks):
            if place == last:
                yield
                self.commit(number, end)
            yield
            if not self.holds(token):
                return
            self.sinks[view].write(number, self.sums[view][n].run(number, part))
        yield
        if self.holds(token) and self.committed < number:
            self.commit(number, end)

    def holds(self, token: int) -> bool:
        return token == self.token or self.bug == "ignore the token"

    def changes(self, start: dict[Any, int], end: dict[Any, int]) -> list[Weighted]:
        delta: list[Weighted] = []
        for (table, region), log in self.logs.items():
            if (table, region) == ("orders", 1) and self.bug == "forget one region's range":
                continue
            first, last = start[table, region] + 1, end[table, region]
            by_key: defaultdict[Any, list[tuple[Row | None, Row | None]]] = defaultdict(list)
            for sequence, key, before, after in log:
                if first <= sequence <= last:
                    by_key[key].append((before, after))
            for versions in by_key.values():
                if self.bug == "swap two versions of a key" and len(versions) > 1:
                    versions[-1] = (versions[-1][0], versions[0][1])
                for before, after in versions:
                    if after is None and self.bug == "drop a delete":
                        continue
                    delta += [(table, before, -1)] if before else []
                    delta += [(table, after, +1)] if after else []
        return delta

    def commit(self, number: int, end: dict[Any, int]) -> None:
        self.committed, self.positions, self.intent = number, end, None
        self.record_commit()
        for region, log in self.logs.items():
            upto = self.lasts[region] if self.bug == "trim too early" else end[region]
            log[:] = [change for change in log if change[0] > upto]

    def record_commit(self) -> None:
        positions: dict[str, dict[int, int]] = {table: {} for table in REGIONS}
        for (table, region), sequence in self.positions.items():
            positions[table][region] = sequence
        self.history.commits.append(Commit(self.committed, positions))

    def read(self, reader: str | None = None) -> None:
        """Both views, by someone who pinned an epoch or reads the newest."""
        reader = reader or self.random.choice(["ann", "bob", *self.pins])
        epoch, began = self.pins.get(reader, (self.committed, self.now()))
        early = self.bug == "read new rows before commit"
        for view, sink in self.sinks.items():
            rows = sink.read(epoch, early)
            if rows is None:  # overtaken: a pin that is no longer there
                self.pins.pop(reader, None)
                return
            key = None
            if rows and self.random.random() < 0.3:
                rows = [self.random.choice(rows)]
                key = (rows[0][sink.group],)
            self.history.reads.append(
                Read(view, tuple(rows), epoch, key, reader, began, self.now())
            )

    def pin(self) -> None:
        self.pins[f"pin {len(self.pins)}.{self.now()}"] = (self.committed, self.now())

    def now(self) -> float:
        self.clock += 1
        return self.clock


def shard_of(value: str) -> int:
    return ord(value[0]) % SHARDS
