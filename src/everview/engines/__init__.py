"""The engines that evaluate SQL.

The code here uses only what PySpark also has in Spark Connect, so it works on Apache Spark, a Spark
cluster, Spark Connect and Sail.
"""

import os

from everview.errors import EngineUnavailable

ENGINES = ("spark", "sail")

# gRPC reads this when it is imported. Its work in forked child processes sometimes kept Spark's JVM
# from starting.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


def check_engine(name: str) -> None:
    if name not in ENGINES:
        raise EngineUnavailable(f"there is no engine {name!r}; there are {' and '.join(ENGINES)}")
