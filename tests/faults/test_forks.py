"""A process may fork while another of its threads writes and syncs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FORKS = 100
PARENT = f"""
import os, sys, threading, time
import everview as ev
from everview.stores.embedded import syncing

syncing.SYNC_SECONDS = 0.0
db = ev.open(sys.argv[1], create=True)
table = db.create_table("t", {{"id": "INT", "x": "STRING"}}, key="id")
done = False

def write():
    while not done:
        table.put([{{"id": n, "x": "y" * 200}} for n in range(40)])

writer = threading.Thread(target=write)
writer.start()
ended = 0
for _ in range({FORKS}):
    child = os.fork()
    if child == 0:
        os._exit(0)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            ended += 1
            break
        time.sleep(0.001)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        break
done = True
writer.join()
print(ended)
"""


def test_children_forked_while_another_thread_syncs_do_not_hang(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PARENT, str(tmp_path / "test.ev")]
    given = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert given.stdout.strip() == str(FORKS)
