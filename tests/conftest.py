"""Fixtures for all tests: one Spark and one Sail session serve the whole run."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import everview as ev
from everview.engines.engine import Engine, start
from everview.maintain import dealing, epochs
from everview.programs import direct, streamed
from everview.programs.direct import DIRECT, DIRECT_CHANGES, is_small
from everview.programs.step import Step

from .proofs import Prove, proof_recorded, show_proofs

LONGEST = (
    *("test_tpch.py", "test_breadth.py", "test_steps.py", "test_spark_workers.py"),
    *("test_zombie.py", "test_bank.py", "test_calls.py", "test_random.py", "test_views.py"),
    *("test_stopped.py",),
)
settings.register_profile(
    "everview", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("everview")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests at full length")
    parser.addoption("--seed", help="run random queries of this seed; 12:3 is one view of it")
    parser.addoption("--direct", type=float, default=0.5, help="share of small steps done here")
    parser.addoption("--shrink", action="store_true", help="make failing random queries small")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that of two processes neither is left alone with them."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "on_the_engine: small steps are left to the engine too")
    config.addinivalue_line("markers", "direct: small steps are done without the engine")
    config.addinivalue_line("markers", "whole_shards: no slots are dealt out by chance")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Small steps are done here or on the engine, and slots are dealt out to tasks or not, by
    chance, and in the next run by the same chance: each has to go on where the other ended. Other
    processes do all here, or nothing."""
    chance = random.Random(item.nodeid)
    is_fixed = item.get_closest_marker("on_the_engine") or item.get_closest_marker("direct")
    share = (
        item.config.getoption("--direct") if is_fixed is None else float(is_fixed.name == "direct")
    )

    def is_small_by_chance(step: Step, most: int | None = None) -> bool:
        return chance.random() < share and is_small(step, most)

    is_whole = item.get_closest_marker("whole_shards")

    def deal_out_by_chance(*deal: Any) -> tuple[int, ...]:
        step, tasks = deal[2], chance.choice([0, 1, 2, 3])
        if chance.random() >= share or is_fixed or is_whole or not tasks:
            return dealing.deal_out(*deal)
        return tuple(chance.randrange(tasks) for _ in range(step.slots))

    direct.is_small = streamed.is_small = is_small_by_chance
    epochs.deal_out = deal_out_by_chance
    os.environ[DIRECT] = str(DIRECT_CHANGES if chance.random() < share else 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    show_proofs(terminalreporter)


@pytest.fixture
def proof(record_property: Callable[[str, object], None]) -> Prove:
    """Call it with what a fault test has shown: a row of the table at the end of the run."""
    return proof_recorded(record_property)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[ev.Database]:
    with ev.open(tmp_path / "test.ev", create=True) as database:
        yield database


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where the Spark of the tests also serves Spark Connect."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def spark(connect_port: int, request: pytest.FixtureRequest) -> Engine:
    """Compiling small queries takes Spark longer than running them, so the short form does not."""
    source = str(Path(ev.__file__).parents[1])
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", source, prepend=os.pathsep)
        environment.setenv(
            "PYSPARK_SUBMIT_ARGS",
            "--conf spark.plugins=org.apache.spark.sql.connect.SparkConnectPlugin "
            "--conf spark.connect.grpc.binding.address=127.0.0.1 "
            f"--conf spark.connect.grpc.binding.port={connect_port} pyspark-shell",
        )
        engine = start("spark")
    if not request.config.getoption("--long"):
        engine.session.conf.set("spark.sql.codegen.wholeStage", "false")
        engine.session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return engine


@pytest.fixture(scope="session")
def sail(spark: Engine) -> Engine:
    """Views are planned by Spark here too: let it be the one that serves Spark Connect."""
    pytest.importorskip("pysail")
    return start("sail")


@pytest.fixture(params=["spark", "sail"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn: what a test says holds for both."""
    found: Engine = request.getfixturevalue(request.param)
    return found
