"""A Spark cluster of two hosts that are one, whose executors are slow, run tasks twice and die.

Run as a program: python cluster.py DB NOTES EPOCHS SLOW. It maintains a bank, each epoch with a
fault; the tasks note in the directory NOTES which attempt they are. It prints how often an executor
was killed, the seconds from there until the epoch was committed, and how many tasks had a second
attempt while no executor was killed.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import bank
import pyspark
from proc import command_of, family
from pyspark import TaskContext
from pyspark.sql import SparkSession

import everview as ev
from everview.programs import step, workers

HOSTS = ("127.0.0.1", "127.0.0.2")
HOME = os.path.dirname(pyspark.__file__)
SETTINGS = {
    "spark.driver.host": HOSTS[0],
    "spark.driver.bindAddress": HOSTS[0],
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "8",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.task.duration.threshold": "500ms",
}


@contextmanager
def daemon(log: Path, kind: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [f"{HOME}/bin/spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def executors() -> list[int]:
    """Those of this program's workers."""
    return [
        pid for pid in family(os.getpid()) if b"CoarseGrainedExecutorBackend" in command_of(pid)
    ]


def noting(name: str, notes: str, slow: float) -> Callable[..., Any]:
    """A worker function; it notes attempts, and of each stage one waits until there is a second,
    before what it writes or after. Spark sends this to its workers, which have the function itself.
    """

    def run(*given: Any) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        task = f"{notes}/{context.stageId()}.{context.partitionId()}"
        with open(f"{task}.{context.attemptNumber()}", "w"):
            pass
        is_slow = context.attemptNumber() == 0 and context.partitionId() == 0
        if is_slow and context.stageId() % 2:
            wait_for(f"{task}.1", slow)
        made = list(getattr(workers, name)(*given))
        if is_slow and not context.stageId() % 2:
            wait_for(f"{task}.1", slow)
        yield from made

    return run


def wait_for(file: str, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not os.path.exists(file) and time.monotonic() < until:
        time.sleep(0.02)


def again(notes: str) -> int:
    """How many tasks were run again, or a second time."""
    return sum(not name.endswith(".0") for name in os.listdir(notes))


def kill_one(chance: random.Random, killed: list[float]) -> None:
    time.sleep(chance.uniform(0, 1))
    if found := executors():
        os.kill(chance.choice(found), 9)
        killed.append(time.monotonic())


def main(path: str, notes: str, epochs: int, slow: float) -> None:
    os.environ |= {
        "SPARK_HOME": HOME,
        "SPARK_LOCAL_IP": HOSTS[0],
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(ev.__file__).parents[1]),
    }
    directory = Path(notes).parent
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port = str(probe.getsockname()[1])
    with ExitStack() as stack:
        master = ["--host", HOSTS[0], "--port", port, "--webui-port", "0"]
        stack.enter_context(daemon(directory / "master.log", "master.Master", *master))
        url = f"spark://{HOSTS[0]}:{port}"
        for host in HOSTS:
            place = ["--host", host, "--webui-port", "0", "-c", "2", "-m", "1g"]
            work = ["-d", str(directory / f"work{host}"), url]
            stack.enter_context(daemon(directory / f"{host}.log", "worker.Worker", *place, *work))
        builder = SparkSession.builder.master(url)
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        stack.callback(session.stop)
        maintain(path, notes, epochs, slow)


def maintain(path: str, notes: str, epochs: int, slow: float) -> None:
    step.FEW_CHANGES = 0  # so that there are several tasks, and shuffles
    for name in ("operate", "sink"):
        setattr(workers, name, noting(name, notes, slow))
    chance, killed, recovery = random.Random(6), list[float](), list[float]()
    speculated = 0
    with ev.open(path, engine="spark") as db:
        made = len(db.table("transfers"))
        for number in range(epochs):
            made = bank.work(db, chance, made, 300)
            before, ran_again = len(killed), again(notes)
            killer = threading.Thread(target=kill_one, args=(chance, killed))
            if number % 2:
                killer.start()
            failed = db.maintain().failed
            ended = time.monotonic()
            if number % 2 == 0:
                speculated += again(notes) - ran_again
            else:
                killer.join()
                recovery += [ended - when for when in killed[before:] if when < ended]
            assert not failed, failed
            assert bank.faults(db)[1] == []
    told = {"killed": len(killed), "recovery": recovery, "speculated": speculated}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
