"""The engines of one handle of a database."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from everview.engines import check_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession

    from everview.engines.engine import Engine


class Engines:
    """Starts each engine once, when it is first needed.

    `name` is the engine that evaluates: "spark" or "sail". With a `session`, it works in the Spark,
    or the Sail, of that session, in a session of its own beside it.
    """

    def __init__(self, name: str = "spark", session: SparkSession | None = None) -> None:
        check_engine(name)
        self.name = name
        self._session = session
        self._own: Engine | None = None
        self._started: dict[str, Engine] = {}
        self._starting = threading.RLock()

    @property
    def own(self) -> Engine:
        """The engine that evaluates queries and views."""
        with self._starting:
            if self._own is None:
                from everview.engines.engine import start

                self._own = start(self.name, self._session)
            return self._own

    @property
    def _own_name(self) -> str:
        """The name of the own engine, without starting it."""
        return self.name if self._own is None else self._own.name

    def use(self, engine: Engine) -> None:
        """Evaluate with an engine that runs already."""
        self._own = engine

    def named(self, name: str | None) -> Engine:
        """The engine of a name; None stands for the own one."""
        if name is None or name == self._own_name:
            return self.own
        return self._another(name)

    @property
    def planner(self) -> Engine:
        """Apache Spark in this process: its optimizer plans views, whichever engine runs them."""
        if self._own_name == "spark" and self.own.has_optimizer:
            return self.own
        return self._another("spark")

    def _another(self, name: str) -> Engine:
        """An engine beside the own one."""
        with self._starting:
            if name not in self._started:
                from everview.engines.engine import start

                self._started[name] = start(name)
            return self._started[name]

    def interrupt(self) -> bool:
        """End the queries of the own engine; False if there are none that can be ended."""
        return self._own is not None and self._own.interrupt()
