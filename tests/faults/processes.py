"""Starting, watching and killing the children of workload.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from . import workload

Report = dict[str, Any]
PATIENCE = 60.0


class Child:
    """A running job, by the name of its function in workload.py."""

    def __init__(self, server: Server, pid: int, reports: Path) -> None:
        self._server = server
        self._status: int | None = None
        self.pid = pid
        self._reports = reports

    def reports(self) -> list[Report]:
        """What the child has reported so far; fails the test if the child failed."""
        text = self._reports.read_text() if self._reports.exists() else ""
        found: list[Report] = [json.loads(line) for line in text.splitlines()]
        for report in found:
            assert "failed" not in report, report["trace"]
        return found

    def wait_for_report(self, key: str) -> Report:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for report in self.reports():
                if key in report:
                    return report
            time.sleep(0.001)
        raise AssertionError(f"no report {key!r} within {PATIENCE} s: {self.reports()}")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.status(poll=False) == signal.SIGKILL

    def status(self, poll: bool) -> int | None:
        """The wait status of the child, None while it runs."""
        if self._status is None:
            pid, status = self._server.ask("wait", {"pid": self.pid, "poll": poll})
            self._status = status if pid else None
        return self._status

    def ends_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.status(poll=True) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.status(poll=True) is not None

    def result(self, seconds: float = PATIENCE) -> list[Report]:
        """All reports of a child that ended well."""
        ended = self.ends_within(seconds)
        reports = self.reports()
        assert ended, f"still running after {seconds} s: {reports}"
        assert self._status == 0, f"ended with status {self._status}: {reports}"
        return reports


class Server:
    """The process that forks children; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = count()
        self._children: list[Child] = []
        self._process = subprocess.Popen(
            [sys.executable, workload.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, job: str, **arguments: Any) -> Child:
        reports = self._directory / f"reports{next(self._numbers)}"
        child = Child(self, self.ask(job, arguments, str(reports)), reports)
        self._children.append(child)
        return child

    def ask(self, job: str, arguments: Report, reports: str = "") -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([job, arguments, reports]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end_children(self) -> None:
        for child in self._children:
            if child.status(poll=True) is None:
                os.kill(child.pid, signal.SIGKILL)
                child.status(poll=False)
        self._children.clear()

    def close(self) -> None:
        self.end_children()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()
