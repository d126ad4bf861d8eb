"""Byte strings in their order, however they are sorted, and no more than there is room for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.codec.buffers import ascending, binary_array
from everview.errors import DataError

EQUALLY_LONG = st.integers(1, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=20)
)


@given(
    texts=EQUALLY_LONG | st.lists(st.binary(max_size=12), max_size=20), skipped=st.integers(0, 3)
)
def test_places_are_those_of_sorted_texts(texts: list[bytes], skipped: int) -> None:
    """Also of a part of an array."""
    array = pa.array([b"before"] * skipped + texts, pa.binary()).slice(skipped)
    places = ascending(array)
    assert sorted(places.tolist()) == list(range(len(texts)))
    assert [texts[place] for place in places] == sorted(texts)


def test_more_bytes_than_an_array_has_room_for_are_refused() -> None:
    with pytest.raises(DataError, match="2,147,483,648 bytes of rows would be needed at once"):
        binary_array(b"", np.array([0, 1 << 31]))
