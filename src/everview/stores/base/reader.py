"""The contract of readers: tables, records and states, as they are now or as of one epoch."""

from __future__ import annotations

from abc import abstractmethod

from everview.stores.base.catalog import CatalogReader
from everview.stores.base.states import StateReader
from everview.stores.base.tables import TableReader


class Reader(TableReader):
    """Tables to read, with the catalog and the states that belong to them."""

    @property
    @abstractmethod
    def address(self) -> str:
        """How another process opens the same store; see `everview.stores.open_store`."""

    @property
    @abstractmethod
    def catalog(self) -> CatalogReader: ...

    @property
    @abstractmethod
    def states(self) -> StateReader: ...
