"""Key bytes sort as the key values do, and are equal exactly when the values are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.codec import KeyCodec
from everview.codec.keys import region_of, regions_of
from everview.codec.point import encode_key
from everview.schema import Column, arrow_type
from tests.values import TYPES, column, order_of, values


@st.composite
def key_sets(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    rows = draw(st.lists(st.tuples(*(values(name) for name in types)), min_size=1, max_size=12))
    return types, rows


def encode(types: list[str], rows: list[tuple[Any, ...]]) -> list[bytes]:
    codec = KeyCodec([Column(f"k{i}", arrow_type(name), False) for i, name in enumerate(types)])
    columns = [column(name, [row[i] for row in rows]) for i, name in enumerate(types)]
    return codec.encode(columns).to_pylist()  # type: ignore[no-any-return]


@given(key_sets())
@example((["STRING", "BIGINT"], [("a", 5), ("a\0", -1), ("ab", 0), ("", 2**63 - 1)]))
@example((["DOUBLE"], [(float("nan"),), (float("inf"),), (-0.0,), (0.0,), (float("-inf"),)]))
@example((["BINARY"], [(b"",), (b"\0",), (b"\0\0",), (b"\0\xff",), (b"\xff",)]))
@example((["DECIMAL(38,10)"], [(-(10**27),), (0,), (10**27,)]))
def test_keys_sort_as_their_values(keys: tuple[list[str], list[tuple[Any, ...]]]) -> None:
    types, rows = keys
    ranked = [
        (tuple(order_of(value) for value in row), key)
        for row, key in zip(rows, encode(types, rows), strict=True)
    ]
    for mine, my_key in ranked:
        for other, other_key in ranked:
            assert (mine < other) == (my_key < other_key)
            assert (mine == other) == (my_key == other_key)


@given(key_sets())
def test_leading_columns_bound_the_keys_that_begin_with_them(
    keys: tuple[list[str], list[tuple[Any, ...]]],
) -> None:
    types, rows = keys
    prefixes = encode(types[:1], [row[:1] for row in rows])
    assert all(k.startswith(p) for k, p in zip(encode(types, rows), prefixes, strict=True))


@given(st.sampled_from(TYPES).flatmap(lambda name: st.tuples(st.just(name), values(name))))
def test_a_single_key_has_the_bytes_it_has_in_a_batch(key: tuple[str, Any]) -> None:
    name, value = key
    single = encode_key([Column("k", arrow_type(name), False)], (value,))
    assert single in (None, encode([name], [(value,)])[0])
    if name in ("BIGINT", "STRING"):
        assert single is not None


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1), st.integers(1, 1024))
@example([b"\0", b"\0\0"], 3)
def test_the_region_of_a_key_is_the_same_alone_and_in_a_batch(
    keys: list[bytes], regions: int
) -> None:
    found = regions_of(pa.array(keys, pa.binary()), regions).tolist()
    assert found == [region_of(key, regions) for key in keys]
    assert found[-1:] == regions_of(pa.array(keys, pa.binary())[-1:], regions).tolist()
    assert max(found) < regions


@pytest.mark.parametrize("kind", ["INT", "BIGINT", "STRING", "DATE"])
@pytest.mark.parametrize("stride", [1, 7, 1024])
def test_keys_spread_over_all_regions(kind: str, stride: int) -> None:
    made = [n * stride for n in range(8_000)]
    rows = [(f"customer#{n}" if kind == "STRING" else n,) for n in made]
    if kind == "DATE":
        rows = [(dt.date(1, 1, 1) + dt.timedelta(days=n % 3_000_000),) for n in made]
    counts = np.bincount(regions_of(pa.array(encode([kind], rows), pa.binary()), 8), minlength=8)
    assert counts.min() > 700
    assert counts.max() < 1_300


def test_no_key_is_empty_for_lmdb() -> None:
    assert all(encode([name], [("" if name == "STRING" else b"",)])[0] for name in ("STRING",))
    assert encode(["BINARY"], [(b"",)])[0] == b"\0\0"
    assert pa.types.is_binary(pa.array(encode(["BOOLEAN"], [(False,)])).type)
