"""The TPC-H tables at scale factor 0.01, made once for all tests."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everview as ev
from everview import tpch
from everview.load.files import load
from tests.tpch.oracle import tables_of

SCALE = 0.01


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pa.Table]:
    files = tmp_path_factory.mktemp("tpch")
    tpch.generate(files, SCALE)
    with ev.open(files / "tpch.ev", create=True, durability="never") as db:
        tpch.create_tables(db)
        for name in tpch.KEYS:
            load(db.table(name), files / f"{name}.parquet")
        return tables_of(db)
