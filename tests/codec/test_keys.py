"""Key bytes sort as the key values do, and are equal exactly when the values are."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
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


def test_keys_spread_over_all_regions_and_stay_there() -> None:
    keys = [number.to_bytes(8, "big") for number in range(10_000)]
    regions = regions_of(keys, 7)
    assert regions.tolist() == [region_of(key, 7) for key in keys]
    counts = [regions.tolist().count(region) for region in range(7)]
    assert min(counts) > 1_000


def test_no_key_is_empty_for_lmdb() -> None:
    assert all(encode([name], [("" if name == "STRING" else b"",)])[0] for name in ("STRING",))
    assert encode(["BINARY"], [(b"",)])[0] == b"\0\0"
    assert pa.types.is_binary(pa.array(encode(["BOOLEAN"], [(False,)])).type)
