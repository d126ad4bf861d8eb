"""Observers of tables: objects of this process, and 'module:Class' names from the definitions."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from everview.errors import InvalidSchema, ObserverFailed, WriteRejected
from everview.schema import TableSchema
from everview.stores.base import Observer, Write


class Observers:
    """The observers of each table, in this process."""

    def __init__(self) -> None:
        self._attached: dict[str, list[Observer]] = {}
        self._by_name: dict[str, Observer] = {}

    def attach(self, table: str, observer: Observer) -> None:
        self._attached.setdefault(table.lower(), []).append(observer)

    def detach(self, table: str, observer: Observer) -> None:
        attached = self._attached.get(table.lower(), [])
        if observer in attached:
            attached.remove(observer)

    def of(self, schema: TableSchema) -> list[Observer]:
        """The table's observers: those of its definition first, then as they were attached."""
        return [*self.load(schema), *self._attached.get(schema.name.lower(), ())]

    def load(self, schema: TableSchema) -> list[Observer]:
        for name in schema.observers:
            if name not in self._by_name:
                self._by_name[name] = _load(schema.name, name)
        return [self._by_name[name] for name in schema.observers]

    def forget(self, table: str) -> None:
        self._attached.pop(table.lower(), None)


def ask(observers: Sequence[Observer], write: Write) -> None:
    """Let every observer see a write before it is committed; raises `WriteRejected`."""
    for observer in observers:
        try:
            observer.before(write)
        except Exception as error:
            raise WriteRejected(
                f"table {write.table.name}: observer {type(observer).__name__} rejected the "
                f"{write.op}: {error}. Nothing was written."
            ) from error


def tell(observers: Sequence[Observer], writes: Sequence[Write]) -> None:
    """Let every observer see committed writes; raises `ObserverFailed` when one can't."""
    for write in writes:
        for observer in observers:
            try:
                observer.after(write)
            except Exception as error:
                raise ObserverFailed(
                    f"table {write.table.name}: the {write.op} is committed, but observer "
                    f"{type(observer).__name__} failed after it: {error}"
                ) from error


def _load(table: str, name: str) -> Observer:
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
        is_observer = isinstance(kind, type) and issubclass(kind, Observer)
        instance = kind() if is_observer else None  # nothing else is called
    except Exception as error:
        raise InvalidSchema(
            f"table {table}: observer {name!r} can't be loaded ({error}); name it 'module:Class', "
            "importable by every process that writes"
        ) from error
    if instance is None:
        raise InvalidSchema(f"table {table}: {name!r} is not an everview.Observer")
    observer: Observer = instance
    return observer
