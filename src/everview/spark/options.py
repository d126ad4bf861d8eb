"""The options of the everview source, checked, and the store they point at."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from everview import stores
from everview.errors import SqlError
from everview.stores.base import LogRange, Store, check_consumer

OF_CHANGES = ("startingPosition", "maxRowsPerBatch", "consumer")
KNOWN = ("db", "path", "table", "columns", "snapshot", "changes", *OF_CHANGES)


@contextmanager
def store_at(address: str, readonly: bool = True) -> Iterator[Store]:
    """The store, closed at the end of the block: no file of it stays open between reads."""
    store = stores.open_store(address, readonly=readonly)
    try:
        yield store
    finally:
        store.close()


@dataclass(frozen=True)
class Options:
    """The options of a read; plain data, since Spark sends it to its Python workers."""

    db: str
    table: str
    columns: tuple[str, ...] | None
    snapshot: dict[int, int] | None
    changes: bool
    starts: str
    max_rows: int | None
    consumer: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        _refuse_unknown(options)
        changes = _flag(options, "changes")
        _refuse_unfit(options, changes)
        rows = options.get("maxRowsPerBatch")
        if "consumer" in options:
            check_consumer(options["consumer"])
        return cls(
            db=_required(options, "db", "db"),
            table=_required(options, "table", "path"),
            columns=_names("columns", options["columns"]) if "columns" in options else None,
            snapshot=_positions("snapshot", options["snapshot"]) if "snapshot" in options else None,
            changes=changes,
            starts=options.get("startingPosition", "earliest"),
            max_rows=None if rows is None else _positive("maxRowsPerBatch", rows),
            consumer=options.get("consumer"),
        )

    def starting(self, logs: Mapping[int, LogRange]) -> dict[int, int]:
        """The positions where reading changes starts."""
        if self.starts == "earliest":
            return {region: log.first - 1 for region, log in logs.items()}
        if self.starts == "latest":
            return {region: log.last for region, log in logs.items()}
        return self.covering("startingPosition", _positions("startingPosition", self.starts), logs)

    def covering(
        self, option: str, positions: dict[int, int], logs: Mapping[int, LogRange]
    ) -> dict[int, int]:
        """The positions, if they are of this table's regions."""
        if positions.keys() != logs.keys():
            raise SqlError(
                f"option {option} has positions for regions {sorted(positions)}, but table "
                f"{self.table} has regions {sorted(logs)}; give one for each"
            )
        return positions


def _refuse_unknown(options: Mapping[str, str]) -> None:
    known = {name.lower() for name in KNOWN}
    unknown = [name for name in options if name.lower() not in known]
    if unknown:
        raise SqlError(
            f"format everview has no option {', '.join(unknown)}; it has {', '.join(KNOWN)}"
        )


def _refuse_unfit(options: Mapping[str, str], changes: bool) -> None:
    if changes and "snapshot" in options:
        raise SqlError("option snapshot is for reading rows; for changes, give startingPosition")
    if not changes and (unfit := [name for name in OF_CHANGES if name in options]):
        raise SqlError(f'{unfit[0]} is an option of changes; add .option("changes", "true")')


def _required(options: Mapping[str, str], *names: str) -> str:
    for name in names:
        if options.get(name):
            return options[name]
    raise SqlError(
        f"option {names[0]} is missing; write "
        'spark.read.format("everview").option("db", "shop.ev").load("orders")'
    )


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "false").lower()
    if value not in ("true", "false"):
        raise SqlError(f"option {name} is true or false, not {value!r}")
    return value == "true"


def _positive(option: str, text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise SqlError(f"option {option} is a number of rows from 1 on, not {text!r}")
    return int(text)


def _names(option: str, text: str) -> tuple[str, ...]:
    """Names separated by commas, or a JSON array for names with commas in them."""
    try:
        names = json.loads(text) if text.startswith("[") else text.split(",")
    except ValueError:
        raise SqlError(
            f"option {option} can't be {text!r}; give names separated by commas, or a JSON array"
        ) from None
    if stripped := tuple(name.strip() for name in names if name.strip()):
        return stripped
    raise SqlError(f"option {option} names no column; leave it out to read all")


def _positions(option: str, text: str) -> dict[int, int]:
    try:
        return {int(region): int(sequence) for region, sequence in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise SqlError(
            f"option {option} can't be {text!r}; give positions as JSON, such as "
            "json.dumps(dict(snapshot.positions))"
        ) from error
