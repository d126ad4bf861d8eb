"""The TPC-H tables: definitions, and data from tpchgen-cli."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from everview.database import Database
from everview.errors import EverviewError

KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "customer": ("c_custkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}

_COLUMNS = {
    "region": "r_regionkey BIGINT, r_name STRING, r_comment STRING",
    "nation": "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING",
    "customer": "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, "
    "c_phone STRING, c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
    "supplier": "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, "
    "s_phone STRING, s_acctbal DECIMAL(15,2), s_comment STRING",
    "part": "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, "
    "p_size INT, p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, "
    "ps_supplycost DECIMAL(15,2), ps_comment STRING",
    "orders": "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, "
    "o_totalprice DECIMAL(15,2), o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, "
    "o_shippriority INT, o_comment STRING",
    "lineitem": "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, "
    "l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), "
    "l_tax DECIMAL(15,2), l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, "
    "l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, l_shipmode STRING, "
    "l_comment STRING",
}


def create_tables(db: Database) -> None:
    """All eight tables, empty."""
    for name, columns in _COLUMNS.items():
        db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({', '.join(KEYS[name])}))")


def generate(directory: Path, scale: float, tables: tuple[str, ...] = tuple(KEYS)) -> None:
    """Write TABLE.parquet for each table into `directory`."""
    run_generator("tpchgen-cli", "parquet", directory, scale, tables, "TPC-H", "demo")


def run_generator(
    tool: str,
    arguments: str,
    directory: Path,
    scale: float,
    tables: Iterable[str],
    data: str,
    extra: str,
) -> None:
    """Have a command-line tool, which an extra of this package installs, write tables as files."""
    executable = shutil.which(tool, path=os.path.dirname(sys.executable)) or shutil.which(tool)
    if executable is None:
        raise EverviewError(
            f"{data} data comes from {tool}, which is not installed; pip install everview[{extra}]"
        )
    options = ["-s", str(scale), "--tables", ",".join(tables), "--output-dir", str(directory)]
    subprocess.run([executable, *arguments.split(), *options], check=True, capture_output=True)
