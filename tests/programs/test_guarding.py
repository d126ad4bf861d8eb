"""An error of a guarded generator keeps nothing alive of what it was raised over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from everview.errors import Overflow
from everview.programs.guarding import guarded


class Batches:
    def __iter__(self) -> Iterator[int]:
        return iter([1, 2])


@guarded
def halves(by: int, batches: Batches) -> Iterator[float]:
    for number in batches:
        try:
            yield number / by
        except ZeroDivisionError as error:
            raise Overflow(f"{number} can't be divided") from error


def test_an_error_lets_go_of_the_batches() -> None:
    batches = Batches()
    alive = weakref.ref(batches)
    gc.disable()
    try:
        with pytest.raises(Overflow, match="1 can't be divided") as caught:
            list(halves(0, batches))
        del batches
        assert caught.value is not None
        assert alive() is None
    finally:
        gc.enable()


def test_what_does_not_fail_is_as_it_was() -> None:
    assert list(halves(2, Batches())) == [0.5, 1.0]
    assert halves.__name__ == "halves"
