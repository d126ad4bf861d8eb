"""What runs on Spark: the engines, and the everview source for reading tables and changes.

Everything here is plain PySpark that also exists in Spark Connect, so that one code serves Apache
Spark, a Spark cluster, Spark Connect and Sail.
"""

import os

from everview.errors import EngineUnavailable

ENGINES = ("spark", "sail")

# what gRPC does in a child that was just forked now and then kept Spark's JVM from starting; it
# looks here when it is imported
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")


def check_engine(name: str) -> None:
    if name not in ENGINES:
        raise EngineUnavailable(f"there is no engine {name!r}; there are {' and '.join(ENGINES)}")
