"""Whatever byte of a shard's items changes on disk, reads are right or told to be damaged."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from everview.errors import Damaged
from everview.operators.base import MemoryState
from everview.state import State
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.sealed import COUNT, SEAL
from everview.stores.embedded.shard import EmbeddedShard
from tests.shards import NAMES, new_shard

FLIPS = 1500
_KEYS = [f"key {n:05d}".encode() for n in range(0, 3000, 2)]
_ABSENT = [f"key {n:05d}".encode() for n in range(1, 3000, 2)]


class Undone(Exception):
    """The transaction is given up."""


def fill(state: State) -> None:
    chance = random.Random(1)
    state.put_many(_KEYS, [b"value of " + key * chance.randrange(1, 4) for key in _KEYS])
    rows = [(key, b"row %d of " % n + key) for key in _KEYS[::3] for n in range(len(key) % 3 + 2)]
    rows += [(_KEYS[0], b"many %03d" % n) for n in range(300)]
    rows += [(_KEYS[9], b"long " * 200 + b"%d" % n) for n in range(3)]
    keys, bodies = zip(*sorted(rows), strict=True)
    state.change_bags(list(keys), list(bodies), [1 + n % 3 for n in range(len(rows))])


@pytest.fixture(scope="module")
def memory() -> MemoryState:
    state = MemoryState()
    fill(state)
    return state


@pytest.fixture(scope="module", params=NAMES)
def shard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedShard]:
    path = tmp_path_factory.mktemp("damaged") / "store.ev"
    store = EmbeddedStore(str(path), create=True, durability="never")
    shard = new_shard(store, request.param, 0)

    def work(state: State) -> pa.Table:
        fill(state)
        return pa.table({})

    shard.apply(1, 1, work)
    yield shard
    store.close()


@pytest.fixture(scope="module")
def places(shard: EmbeddedShard, memory: MemoryState) -> list[int]:
    """Where keys, values, counts and checksums lie in the file."""
    data = data_file(shard).read_bytes()
    found: set[int] = set()
    behind = dict.fromkeys([*memory.values, *memory.bags], 0)
    behind |= dict.fromkeys(memory.values.values(), SEAL)
    for bag in memory.bags.values():
        behind |= {row: SEAL + COUNT * (count > 1) for row, count in bag.items()}
    for text, more in behind.items():
        at = data.find(text)
        while at >= 0:
            found.update(range(at - len(shard._prefix), at + len(text) + more))
            at = data.find(text, at + 1)
    assert len(found) > 100_000
    return sorted(found)


def data_file(shard: EmbeddedShard) -> Path:
    return Path(shard.environment.path, "data.mdb")


def answer(shard: EmbeddedShard, question: Callable[[State], Any]) -> Any:
    answers = []

    def work(state: State) -> pa.Table:
        answers.append(question(state))
        raise Undone

    with pytest.raises(Undone):
        shard.apply(2, 1, work)
    return answers[0]


def bag_of(found: Any, keys: list[bytes]) -> Counter[tuple[bytes, bytes]]:
    bags: Counter[tuple[bytes, bytes]] = Counter()
    for place, row, count in zip(*found, strict=True):
        bags[keys[place], row] += int(count)
    return bags


def questions(near: int) -> list[Callable[[State], Any]]:
    """About keys near one, those that are there and those that aren't, and of changing them."""
    keys = sorted({*_KEYS[max(near - 20, 0) : near + 20], *_ABSENT[max(near - 20, 0) : near + 20]})

    def changed(state: State) -> Any:
        state.change_bags(keys, [b"new"] * len(keys), [1] * len(keys))
        return bag_of(state.get_bags(keys), keys)

    def taken_away(state: State) -> Any:
        gone = [(k, r, -c) for k, r, c in state.scan_bags(keys[0], keys[-1]) if k in keys]
        state.change_bags(*(list(column) for column in zip(*gone, strict=True)))
        return bag_of(state.get_bags(keys), keys)

    return [
        lambda state: state.get_many(keys),
        lambda state: bag_of(state.get_bags(keys), keys),
        lambda state: [state.first(key) for key in keys],
        lambda state: [state.first(key, last=True) for key in keys],
        lambda state: Counter({(k, r): c for k, r, c in state.scan_bags(keys[0], keys[-1])}),
        changed,
        taken_away,
    ]


@pytest.mark.parametrize("part", range(5))
def test_values_by_a_prefix_are_right_or_told_to_be_damaged(
    shard: EmbeddedShard, memory: MemoryState, places: list[int], part: int
) -> None:
    chance = random.Random(part)
    file, told = data_file(shard), Counter[bool]()
    data = file.read_bytes()
    prefix = b"key 014"
    at_keys = [data.find(key) for key in _KEYS if key.startswith(prefix[:-1])]
    near = [place for place in places if min(at_keys) - 40 < place < max(at_keys) + 40]
    expected = [value for key, value in sorted(memory.values.items()) if key.startswith(prefix)]
    for _ in range(FLIPS // 5):
        at = chance.choice(near)
        change(file, at, data[at] ^ chance.randrange(1, 256))
        try:
            assert [value for batch in shard.values(prefix) for value in batch] == expected
            told[False] += 1
        except Damaged:
            told[True] += 1
        finally:
            change(file, at, data[at])
    assert min(told.values()) > 0


@pytest.mark.parametrize("part", range(5))
def test_a_changed_byte_is_told_of_or_does_no_harm(
    shard: EmbeddedShard, memory: MemoryState, places: list[int], part: int
) -> None:
    chance = random.Random(part)
    file, told = data_file(shard), Counter[bool]()
    data = file.read_bytes()
    names = [(data.find(key), n) for n, key in enumerate(_KEYS)]
    for _ in range(FLIPS // 5):
        at = chance.choice(places)
        near = min(names, key=lambda name: abs(name[0] - at))[1]
        flip = chance.randrange(1, 256)
        change(file, at, data[at] ^ flip)
        try:
            for number, question in enumerate(questions(near)):
                try:
                    got = answer(shard, question)
                except Damaged:
                    told[True] += 1
                    continue
                copy = MemoryState()
                copy.values = dict(memory.values)
                copy.bags = {key: Counter(bag) for key, bag in memory.bags.items()}
                told[False] += 1
                assert got == question(copy), (number, at, flip)
        finally:
            change(file, at, data[at])
    assert told[True] > FLIPS // 10


def change(file: Path, at: int, byte: int) -> None:
    with open(file, "r+b") as opened:
        opened.seek(at)
        opened.write(bytes([byte]))
