"""The cost model's constants on this machine: measured by loading and changing a small database."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from everview.catalog import CONSTANTS, VIEWS
from everview.catalog import Constants as Measured
from everview.plan.cost import DEFAULTS, Constants
from everview.stores.work import total

if TYPE_CHECKING:
    from everview.database import Database

ROWS, PARTS, KINDS = 100_000, 2_000, 20
EPOCHS = ((10, 6), (1_000, 4), (8_000, 3))  # changes, and how often
LOADS = 2
_PARTS_CHANGED = 200
# each with how many operators it has, its rows among them
_ONLY_LOADED = {
    "SELECT * FROM few": 1,
    "SELECT f.kind, sum(f.amount) AS total FROM few f JOIN parts p ON f.part = p.id GROUP BY 1": 3,
    "SELECT id, amount FROM rows": 1,
}
_ALSO_CHANGED = {
    "SELECT kind, count(*) AS n, sum(amount) AS total FROM rows GROUP BY kind": 2,
    "SELECT p.name, r.kind, sum(r.amount) AS total FROM rows r JOIN parts p ON r.part = p.id "
    "GROUP BY 1, 2": 3,
}
_TABLES = {
    "few": {"id": "INT", "part": "INT", "kind": "INT", "amount": "BIGINT"},
    "rows": {"id": "INT", "part": "INT", "kind": "INT", "amount": "BIGINT"},
    "parts": {"id": "INT", "name": "STRING"},
}


@dataclass
class _Measurements:
    """Counts and the seconds that they took, of operators, epochs and loads."""

    operators: list[tuple[list[float], float]] = field(default_factory=list)
    epochs: list[tuple[list[float], float]] = field(default_factory=list)
    loads: list[tuple[list[float], float]] = field(default_factory=list)


def calibrate(db: Database, engine: str, tell: Callable[[str], None]) -> Constants:
    """Measure an engine's constants in a temporary database, and keep them in this one; `tell` gets
    a line for each step."""
    import everview

    with (
        tempfile.TemporaryDirectory(prefix="everview-calibrate-") as directory,
        everview.open(f"{directory}/calibrate.ev", create=True, engine=engine) as small,  # type: ignore[arg-type]
    ):
        tell(f"starting {engine} ...")
        measurements = _measure(small, tell)
    constants = _constants(measurements, DEFAULTS[engine])
    db.store.catalog.write({CONSTANTS[engine]: Measured(constants.to_json())})
    return constants


def _measure(db: Database, tell: Callable[[str], None]) -> _Measurements:
    rng = np.random.default_rng(1)
    for name, columns in _TABLES.items():
        db.create_table(name, columns, key="id")
    db.table("few").put(_rows(rng, np.arange(100)))
    db.table("rows").put(_rows(rng, np.arange(ROWS)))
    db.table("parts").put(_parts(rng, np.arange(PARTS)))
    measurements, numbers = _Measurements(), count(1)
    queries = {**_ONLY_LOADED, **_ALSO_CHANGED}
    for query, operators in queries.items():
        tell(f"view {next(numbers)} of {len(queries)}: loading it")
        _load(db, query, operators, measurements)
        if query in _ALSO_CHANGED:
            tell("  changing its tables")
            _change(db, rng, operators, "JOIN" in query, measurements)
        db.sql("DROP VIEW v")
    return measurements


def _load(db: Database, query: str, operators: int, measurements: _Measurements) -> None:
    """Load a view several times; the quickest counts, as the machine may do other things too."""
    loads = []
    for _ in range(LOADS):
        if db.views():
            db.sql("DROP VIEW v")
        db.sql(f"CREATE MATERIALIZED VIEW v AS {query}")
        loads.append(_measure_load(db, operators))
    measurements.loads.append(min(loads, key=lambda load: load[1]))


def _measure_load(db: Database, operators: int) -> tuple[list[float], float]:
    start = time.perf_counter()
    db.maintain()
    seconds = time.perf_counter() - start
    analysis = db.view("v").analyze()
    assert analysis is not None
    # rows as the model counts them: a load may add rows up before it sends them to an aggregate,
    # so the largest table's are counted once for each operator that they would come to
    tables = [status.rows for status in db.status() if status.name in analysis.changes]
    read_rows, sent_rows = sum(tables), sum(tables) + max(tables) * (operators > 2)
    items = db.explain("v", json=True)["state"]["rows"]
    return [1, operators, read_rows + sent_rows, items], seconds


def _change(
    db: Database,
    rng: np.random.Generator,
    operators: int,
    joined: bool,
    measurements: _Measurements,
) -> None:
    """Epochs of several sizes; where there is a join, also of the table that has many partners."""
    sizes = [(size, False) for size, times in EPOCHS for _ in range(times)]
    sizes += [(_PARTS_CHANGED, True)] * 3 if joined else []
    for size, of_parts in sizes:
        if of_parts:
            db.table("parts").put(_parts(rng, rng.choice(PARTS, size, False)))
        else:
            db.table("rows").put(_rows(rng, rng.choice(ROWS, size, False)))
        seconds = db.maintain().seconds
        view = db.store.catalog.get(VIEWS["v"])
        assert view is not None
        epoch = db.view("v").epoch
        works = [
            total(
                work
                for number in view.shards
                for work in db.store.states.shard(state, number).work().epochs
                if work.epoch == epoch
            )
            for state in view.states.values()
        ]
        for work in works:
            counts = [1.0, work.rows_in, work.reads, work.writes]
            measurements.operators.append((counts, work.nanoseconds / 1e9))
        sent_rows = size + sum(work.rows_in for work in works)
        own_seconds = sum(work.nanoseconds for work in works) / 1e9
        measurements.epochs.append(([1, operators, sent_rows], max(seconds - own_seconds, 1e-4)))


def _constants(measurements: _Measurements, default: Constants) -> Constants:
    """The constants that fit the measurements; one that can't be measured keeps its default."""
    own_operator, row, read, write = _fit(measurements.operators)
    epoch, operator, send = _fit(measurements.epochs)
    load, load_operator, load_row, append = _fit(measurements.loads)
    seconds_of = {
        "epoch": epoch,
        "operator": operator + own_operator,
        "send": send,
        "row": row,
        "read": read,
        "write": write,
        "load": load,
        "load_operator": load_operator,
        "load_row": load_row,
        "append": append,
    }
    positive = {name: seconds for name, seconds in seconds_of.items() if seconds > 0}
    return replace(default, **positive, measured=datetime.now(UTC).date().isoformat())


def _fit(samples: Sequence[tuple[list[float], float]]) -> list[float]:
    """Seconds for each count, none negative: by least squares of the relative error."""
    counts = np.array([counts for counts, _ in samples], np.float64)
    seconds = np.array([seconds for _, seconds in samples], np.float64)
    counts /= seconds[:, None]
    places = list(range(counts.shape[1]))
    while True:
        solution = np.linalg.lstsq(counts[:, places], np.ones(len(seconds)), rcond=None)[0]
        if solution.min() >= 0 or len(places) == 1:
            break
        del places[int(solution.argmin())]
    by_place = dict(zip(places, map(float, solution), strict=True))
    return [max(0.0, by_place.get(place, 0.0)) for place in range(counts.shape[1])]


def _rows(rng: np.random.Generator, ids: np.ndarray) -> pa.Table:
    size = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "part": pa.array(rng.integers(0, PARTS, size), pa.int32()),
            "kind": pa.array(rng.integers(0, KINDS, size), pa.int32()),
            "amount": pa.array(rng.integers(0, 10**6, size), pa.int64()),
        }
    )


def _parts(rng: np.random.Generator, ids: np.ndarray) -> pa.Table:
    names = [f"part {number}" for number in rng.integers(0, 100, len(ids))]
    return pa.table({"id": pa.array(ids, pa.int32()), "name": names})
