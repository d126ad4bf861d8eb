"""The TPC-DS tables: keys, which column refers to which table, and data from tpcgen-cli.

Below scale factor 1 the generator keeps some tables at a least size (at 0.01 there are 120,000
lines of store_sales and two stores), so data is thinned further, consistently: sales and returns
of a share of the customers, inventory of a share of the items, and of customer demographics, which
are 1.9 million rows at any scale, those that the other rows refer to; of days and seconds too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import everview as ev
from everview.tpch.tables import run_generator

KEYS = {
    "call_center": ("cc_call_center_sk",),
    "catalog_page": ("cp_catalog_page_sk",),
    "customer_address": ("ca_address_sk",),
    "customer_demographics": ("cd_demo_sk",),
    "date_dim": ("d_date_sk",),
    "income_band": ("ib_income_band_sk",),
    "household_demographics": ("hd_demo_sk",),
    "customer": ("c_customer_sk",),
    "item": ("i_item_sk",),
    "promotion": ("p_promo_sk",),
    "reason": ("r_reason_sk",),
    "ship_mode": ("sm_ship_mode_sk",),
    "store": ("s_store_sk",),
    "time_dim": ("t_time_sk",),
    "warehouse": ("w_warehouse_sk",),
    "web_page": ("wp_web_page_sk",),
    "web_site": ("web_site_sk",),
    "inventory": ("inv_date_sk", "inv_item_sk", "inv_warehouse_sk"),
    "store_sales": ("ss_item_sk", "ss_ticket_number"),
    "store_returns": ("sr_item_sk", "sr_ticket_number"),
    "catalog_sales": ("cs_item_sk", "cs_order_number"),
    "catalog_returns": ("cr_item_sk", "cr_order_number"),
    "web_sales": ("ws_item_sk", "ws_order_number"),
    "web_returns": ("wr_item_sk", "wr_order_number"),
}
# Queries take one day's week or one month's number for granted.
CALENDARS = ("date_dim",)
# A return is of a line of a sale, and mostly by the customer of the sale.
RETURNS = {
    "store_returns": (
        "store_sales",
        {
            "sr_item_sk": "ss_item_sk",
            "sr_ticket_number": "ss_ticket_number",
            "sr_customer_sk": "ss_customer_sk",
        },
    ),
    "catalog_returns": (
        "catalog_sales",
        {
            "cr_item_sk": "cs_item_sk",
            "cr_order_number": "cs_order_number",
            "cr_returning_customer_sk": "cs_bill_customer_sk",
        },
    ),
    "web_returns": (
        "web_sales",
        {
            "wr_item_sk": "ws_item_sk",
            "wr_order_number": "ws_order_number",
            "wr_returning_customer_sk": "ws_bill_customer_sk",
        },
    ),
}
_REFERRED = {
    "date_sk": "date_dim",
    "time_sk": "time_dim",
    "item_sk": "item",
    "customer_sk": "customer",
    "cdemo_sk": "customer_demographics",
    "hdemo_sk": "household_demographics",
    "addr_sk": "customer_address",
    "store_sk": "store",
    "promo_sk": "promotion",
    "call_center_sk": "call_center",
    "catalog_page_sk": "catalog_page",
    "ship_mode_sk": "ship_mode",
    "warehouse_sk": "warehouse",
    "web_page_sk": "web_page",
    "web_site_sk": "web_site",
    "reason_sk": "reason",
    "income_band_sk": "income_band",
}
_REFERENCE = re.compile(rf"[a-z]+_(?:\w+_)?({'|'.join(_REFERRED)})")
_OF_CUSTOMER = {
    "store_sales": "ss_customer_sk",
    "store_returns": "sr_customer_sk",
    "catalog_sales": "cs_bill_customer_sk",
    "catalog_returns": "cr_returning_customer_sk",
    "web_sales": "ws_bill_customer_sk",
    "web_returns": "wr_returning_customer_sk",
    "inventory": "inv_item_sk",
}
_LARGE = {"customer_demographics", "date_dim", "time_dim"}


def referred(table: str, column: str) -> str | None:
    """The table whose key the column has, if it is another one."""
    found = _REFERENCE.fullmatch(column)
    parent = _REFERRED[found[1]] if found else None
    return None if parent == table else parent


def rows(
    directory: Path, scale: float, share: int = 1, names: Iterable[str] = KEYS
) -> dict[str, pa.Table]:
    """Tables as the generator makes them, of facts what belongs to one of `share` customers or
    items.

    The generator's files are kept in `directory`.
    """
    names = list(names)
    _generate(directory, scale, names)
    found = {name: _stored(pq.read_table(directory / f"{name}.parquet")) for name in names}
    for name in _OF_CUSTOMER.keys() & found.keys():
        numbers = pc.fill_null(found[name][_OF_CUSTOMER[name]], 0)
        found[name] = found[name].filter(pa.array(numbers.to_numpy() % share == 0))
    for name in _LARGE & found.keys() if share > 1 else {"customer_demographics"} & found.keys():
        chosen = pc.is_in(found[name][KEYS[name][0]], _referred_to(found, name))
        found[name] = found[name].filter(chosen)
    return found


def _referred_to(tables: dict[str, pa.Table], parent: str) -> pa.Array:
    """The keys of a table that are in rows of others."""
    columns = [
        table[column].drop_null().to_numpy()
        for name, table in tables.items()
        for column in table.column_names
        if referred(name, column) == parent
    ]
    return pa.array(np.unique(np.concatenate(columns))) if columns else pa.array([], pa.int32())


def create(db: ev.Database, tables: dict[str, pa.Table]) -> None:
    """The tables with these rows, without a log."""
    for name, table in tables.items():
        db.create_table(name, table.schema, KEYS[name])
        db.table(name).put(table)
        db.store.trim(name)


def _stored(table: pa.Table) -> pa.Table:
    """With plain strings."""
    return table.cast(
        pa.schema(
            pa.field(f.name, pa.string(), f.nullable) if pa.types.is_string_view(f.type) else f
            for f in table.schema
        ).remove_metadata()
    )


def _generate(directory: Path, scale: float, names: list[str]) -> None:
    missing = [name for name in names if not (directory / f"{name}.parquet").exists()]
    if missing:
        run_generator("tpcgen-cli", "tpcds parquet", directory, scale, missing, "TPC-DS", "dev")
