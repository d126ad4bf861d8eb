"""The store and the engines with which statements work."""

from __future__ import annotations

from dataclasses import dataclass

from everview.engines.engine import Engine
from everview.engines.owner import Engines
from everview.named import open_view
from everview.stores.base import Store
from everview.table import Table
from everview.view import View


@dataclass(frozen=True)
class Context:
    store: Store
    engines: Engines

    @property
    def engine(self) -> Engine:
        """The engine that evaluates."""
        return self.engines.own

    def table(self, name: str) -> Table:
        return Table(self.store, name)

    def view(self, name: str) -> View:
        return open_view(self.store, name)

    def tables(self) -> list[str]:
        """Names of all tables, sorted."""
        return self.store.tables()

    def views(self) -> list[str]:
        """Names of all views, sorted."""
        return self.store.catalog.view_names()
