"""Spark's daemon that forks Python workers: it imports what they need, once for all of them.

To import Everview takes most of a second, which every new worker would spend, and a task that fails
ends its worker.
"""

from __future__ import annotations

import gc

from pyspark import daemon, worker

from everview.programs import workers
from everview.spark import source

FOR_WORKERS = (worker, workers, source)

if __name__ == "__main__":
    gc.freeze()  # workers share these pages as long as nobody writes to them
    daemon.manager()
