"""Locks that guard LMDB in the whole process: against forks, and when environments open or close.

A forked child makes new ones. So take them as attributes of this module, each time anew.
"""

from __future__ import annotations

import os
import threading

# no fork happens while it is held: a child could not close what LMDB is busy with in another thread
fork_lock = threading.RLock()
# one environment is opened or closed at a time: LMDB for Python knows open environments by the
# numbers of their files, and a new file may get the number of a deleted one before LMDB forgets it
# reentrant, as a store that nobody closed may be collected, and so closed, while another opens
open_lock = threading.RLock()


def forget_locks() -> None:
    """Make new locks in a forked child: threads of the parent may hold the old ones."""
    global fork_lock, open_lock
    fork_lock, open_lock = threading.RLock(), threading.RLock()


os.register_at_fork(before=lambda: fork_lock.acquire(), after_in_parent=lambda: fork_lock.release())
