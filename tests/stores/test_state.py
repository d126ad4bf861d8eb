"""State in a shard is what it would be in memory, and an epoch is applied to it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everview.errors import Damaged, Superseded
from everview.operators.base import MemoryState
from everview.state import ORDERED_BYTES, State
from everview.stores.embedded import EmbeddedStore
from everview.stores.embedded.shard import EmbeddedShard
from everview.stores.embedded.state import ShardState
from everview.stores.work import KEPT_EPOCHS, ShardWork, Work
from tests.shards import NAMES, empty, neighbours, new_shard

# LMDB takes keys of 511 bytes, of which long ones have a digest in the last 16; rows of bags have
# a count besides. There are some on both sides of each border, and many that agree up to it.
KEYS = [
    *(b"a", b"b", b"b\0", b"\xff"),
    *(b"k" * size for size in (479, 480, 481, 488, 489, 490, 494, 495, 496, 511, 512, 700)),
    *(b"k" * size + end for size in (489, 495) for end in (b"\0", b"l", b"l" * 100)),
    *(b"k" * 600 + end for end in (b"\0", b"l", b"\xff")),
    b"j" * 700,
    b"l" * 700,
]
# None of these begins with another.
ORDERED = [
    *(b"\0\0", b"a\0", b"\1\0\0\0\0", b"\xff\xff"),
    *(b"r" * size + b"\0" for size in (485, 486, 487, 502, 503, 507, 511, 600)),
    *(b"r" * 487 + end for end in (b"a\0", b"b\0", b"\xff\0", b"b" * 100)),
    *(b"r" * 600 + end for end in (b"a\0", b"b\0", b"\xff\0")),
    b"q" * 600,
    b"s" * 600,
]
# Here some do, and look like another with its count.
NESTED = [b"", b"\0\0\0\0", b"\1\0\0\0", b"\1\0\0\0\1\0\0\0", b"r", b"r" * 486, b"r" * 487]
ROWS = ORDERED + NESTED

Values = dict[bytes, bytes]
Bags = dict[tuple[bytes, bytes], int]
Step = tuple[Values, Bags]
T = TypeVar("T")


@pytest.fixture(scope="module", params=NAMES)
def shard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedShard]:
    """One shard for all tests, which empty it."""
    path = tmp_path_factory.mktemp("state") / "store.ev"
    store = EmbeddedStore(str(path), create=True, durability="never")
    neighbours(store, 0)
    yield new_shard(store, request.param, 0)
    store.close()


class Twins:
    """A shard and memory, empty at first, that change alike."""

    def __init__(self, shard: EmbeddedShard) -> None:
        empty(shard)
        self._shard = shard
        self._epochs = count(1)
        self._memory = MemoryState()

    def change(self, values: Values, bags: Bags) -> None:
        """Set values, and how often rows are in bags."""
        self.ask(partial(change, values=values, bags=bags))

    def ask(self, question: Callable[[State], T]) -> tuple[T, T]:
        """What the shard answers, in a transaction, and what memory does."""
        found: list[T] = []

        def work(state: State) -> pa.Table:
            found.append(question(state))
            return pa.table({})

        self._shard.apply(next(self._epochs), 1, work)
        return found[0], question(self._memory)


def change(state: State, values: Values, bags: Bags) -> None:
    keys, pairs = sorted(values), sorted(bags)
    state.put_many(keys, [values[key] for key in keys])
    before = state.count_rows([key for key, _ in pairs], [row for _, row in pairs])
    weights = [bags[pair] - n for pair, n in zip(pairs, before, strict=True)]
    moved = [(*pair, n) for pair, n in zip(pairs, weights, strict=True) if n]
    state.change_bags(*([entry[i] for entry in moved] for i in range(3)))


def values_of(state: State) -> list[bytes]:
    return state.get_many(sorted(KEYS))


def bags_of(state: State) -> Counter[tuple[bytes, bytes]]:
    keys = sorted(KEYS)
    places, rows, counts = state.get_bags(keys)
    assert places.tolist() == sorted(places.tolist())
    found: Counter[tuple[bytes, bytes]] = Counter()
    for place, row, number in zip(places.tolist(), rows, counts.tolist(), strict=True):
        found[keys[place], row] += number
    return found


def counts_of(state: State) -> Counter[tuple[bytes, bytes]]:
    pairs = list(product(sorted(KEYS), ROWS))
    found = state.count_rows([key for key, _ in pairs], [row for _, row in pairs])
    return Counter({pair: number for pair, number in zip(pairs, found, strict=True) if number})


def steps_of(rows: list[bytes]) -> st.SearchStrategy[list[Step]]:
    keys = st.sampled_from(KEYS)
    values = st.dictionaries(keys, st.sampled_from([b"", b"v", b"v" * 5000]), max_size=4)
    counts = st.sampled_from([0, 1, 1, 2, 3, 256, 2**32 - 1])
    bags = st.dictionaries(st.tuples(keys, st.sampled_from(rows)), counts, max_size=6)
    return st.lists(st.tuples(values, bags), max_size=6)


@given(steps=steps_of(ROWS))
@example(steps=[({}, {(b"a", b""): n}) for n in (1, 3, 1)])  # LMDB has no range from an empty row
@example(steps=[({}, {(b"a", b"r"): n}) for n in (1, 3, 4, 2, 1, 0)])  # counts side by side
def test_a_shard_holds_what_memory_does(shard: EmbeddedShard, steps: list[Step]) -> None:
    twins = Twins(shard)
    for step in steps:
        twins.change(*step)
        values, bags, counts = map(twins.ask, (values_of, bags_of, counts_of))
        assert values[0] == values[1]
        assert bags[0] == bags[1] == counts[0] == counts[1]


@given(steps=steps_of(ORDERED), last=st.booleans())
def test_the_least_and_the_greatest_row_are_those_of_memory(
    shard: EmbeddedShard, steps: list[Step], last: bool
) -> None:
    twins = Twins(shard)
    for step in steps:
        twins.change(*step)
        mine, of_memory = twins.ask(lambda state: [state.first(key, last) for key in KEYS])
        assert mine == of_memory


@given(
    steps=steps_of(ORDERED),
    start=st.sampled_from([b"", *KEYS]),
    stop=st.sampled_from([None, *KEYS]),
)
def test_a_scan_gives_a_range_in_order(
    shard: EmbeddedShard, steps: list[Step], start: bytes, stop: bytes | None
) -> None:
    """Where keys agree in `ORDERED_BYTES`, the shard may give some that are not in the range."""
    twins = Twins(shard)
    for step in steps:
        twins.change(*step)
    mine, exact = twins.ask(lambda state: list(state.scan_bags(start, stop)))
    _, everything = twins.ask(lambda state: list(state.scan_bags()))
    assert added_up(exact) <= added_up(mine)
    assert added_up(mine) <= added_up(
        [
            (key, row, number)
            for key, row, number in everything
            if start[:ORDERED_BYTES] <= key[:ORDERED_BYTES]
            and (stop is None or key[:ORDERED_BYTES] <= stop[:ORDERED_BYTES])
        ]
    )
    assert [key[:ORDERED_BYTES] for key, _, _ in mine] == sorted(
        key[:ORDERED_BYTES] for key, _, _ in mine
    )
    in_order = [(key, row[:487]) for key, row, _ in mine if len(key) < ORDERED_BYTES]
    assert in_order == sorted(in_order)


def added_up(entries: list[tuple[bytes, bytes, int]]) -> Counter[tuple[bytes, bytes]]:
    found: Counter[tuple[bytes, bytes]] = Counter()
    for key, row, number in entries:
        found[key[:ORDERED_BYTES], row] += number
    return found


@given(steps=steps_of(ROWS))
def test_rows_that_are_gone_leave_nothing_behind(shard: EmbeddedShard, steps: list[Step]) -> None:
    twins = Twins(shard)
    for step in steps:
        twins.change(*step)
    long, _ = twins.ask(long_rows)
    assert long == sum(len(row) > 487 for _, row in twins.ask(bags_of)[1])
    twins.change(
        {key: b"" for values, _ in steps for key in values},
        {pair: 0 for _, bags in steps for pair in bags},
    )
    assert shard.size()[0] == 0
    assert twins.ask(long_rows)[0] == 0


def long_rows(state: State) -> int:
    """How many rows are kept aside; in memory there are none."""
    if not isinstance(state, ShardState):
        return 0
    items = state._txn.cursor(state._long).iternext()
    return sum(key.startswith(state._prefix) for key, _ in items)


@pytest.mark.parametrize("row", [b"", b"r", b"r" * 700])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_row_can_not_be_there_less_than_not_at_all(
    shard: EmbeddedShard, row: bytes, before: int
) -> None:
    twins, memory = Twins(shard), MemoryState()
    for changed in (twins.change, partial(change, memory)):
        changed({}, {(b"a", row): before, (b"b", row): 1})

    def take(state: State) -> None:
        state.change_bags([b"a"], [row], [-before - 1])

    with pytest.raises(Damaged, match="negative number of times"):
        twins.ask(take)
    with pytest.raises(Damaged, match="negative number of times"):
        take(memory)
    assert twins.ask(bags_of)[0] == +Counter({(b"a", row): before, (b"b", row): 1})


def test_a_negative_row_in_an_empty_shard_is_damage(shard: EmbeddedShard) -> None:
    twins = Twins(shard)
    with pytest.raises(Damaged, match="negative number of times"):
        twins.ask(lambda state: state.change_bags([b"a"], [b"r"], [-1]))


def test_a_long_row_that_is_missing_is_damage(shard: EmbeddedShard) -> None:
    twins, row = Twins(shard), b"r" * 700
    twins.change({}, {(b"a", row): 1})

    def lose(state: State) -> None:
        if isinstance(state, ShardState):
            state._txn.drop(state._long, delete=False)

    twins.ask(lose)
    with pytest.raises(Damaged, match="long row of state is missing"):
        twins.ask(bags_of)


def putting(key: bytes, value: bytes, calls: list[bytes]) -> Callable[[State], pa.Table]:
    """Puts a value, notes that it did, and gives what was there before."""

    def work(state: State) -> pa.Table:
        calls.append(value)
        before = state.get_many([key])
        state.put_many([key], [value])
        return pa.table({"before": pa.array(before, pa.binary())})

    return work


def test_an_epoch_is_applied_once_and_answered_from_the_outbox(shard: EmbeddedShard) -> None:
    calls: list[bytes] = []
    empty(shard)
    for _ in range(3):
        first = shard.apply(1, 1, putting(b"k", b"one", calls))
        assert first["before"].to_pylist() == [b""]
    for _ in range(2):
        second = shard.apply(2, 1, putting(b"k", b"two", calls))
        assert second["before"].to_pylist() == [b"one"]
    assert calls == [b"one", b"two"]
    assert shard.get(b"k") == b"two"


def test_an_epoch_that_fails_changes_nothing_and_may_be_tried_again(shard: EmbeddedShard) -> None:
    empty(shard)
    shard.apply(1, 1, putting(b"k", b"one", []))

    def fail(state: State) -> pa.Table:
        change(state, {b"k": b"", b"l": b"two"}, {(b"k", b"r" * 700): 1})
        raise RuntimeError("in the middle")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="in the middle"):
            shard.apply(2, 1, fail)
        assert list(shard.values()) == [[b"one"]]
        assert shard.size()[0] == 1
    assert shard.apply(2, 1, putting(b"k", b"two", []))["before"].to_pylist() == [b"one"]


def test_a_load_starts_anew(shard: EmbeddedShard) -> None:
    calls: list[bytes] = []
    empty(shard)
    shard.apply(7, 1, putting(b"k", b"old", calls))
    shard.load(8, 1, lambda state: change(state, {}, {(b"k", b"r" * 700): 2}) or pa.table({}))
    shard.load(8, 1, putting(b"l", b"new", calls))
    assert list(shard.values()) == [[b"new"]]
    assert shard.size()[0] == 1
    assert shard.apply(9, 1, putting(b"l", b"newer", calls))["before"].to_pylist() == [b"new"]
    assert calls == [b"old", b"new", b"newer"]
    with pytest.raises(Superseded, match="epoch 8 is refused, since the shard has applied epoch 9"):
        shard.load(8, 1, putting(b"l", b"late", calls))
    assert list(shard.values()) == [[b"newer"]]


def test_what_comes_with_an_older_token_is_refused(shard: EmbeddedShard) -> None:
    empty(shard)
    shard.load(1, 2, putting(b"k", b"one", []))
    for older in (shard.load, shard.apply):
        with pytest.raises(Superseded, match="lease 2, this one had lease 1"):
            older(2, 1, putting(b"k", b"stale", []))
    shard.apply(2, 3, putting(b"k", b"two", []))
    shard.fence(5)
    with pytest.raises(Superseded, match="lease 5, this one had lease 3"):
        shard.apply(2, 3, putting(b"k", b"stale", []))
    assert shard.apply(2, 5, putting(b"k", b"again", []))["before"].to_pylist() == [b"one"]
    assert shard.get(b"k") == b"two"


def test_a_load_that_fails_leaves_what_was_there(shard: EmbeddedShard) -> None:
    empty(shard)
    shard.load(0, 1, putting(b"k", b"old", []))

    def fail(state: State) -> pa.Table:
        state.put_many([b"l"], [b"new"])
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        shard.load(0, 1, fail)
    assert list(shard.values()) == [[b"old"]]


def telling(work: Callable[[State], pa.Table], rows: int) -> Callable[[ShardState], pa.Table]:
    """Work that says that it was given so many rows, gave one more, and took a second."""

    def told(state: ShardState) -> pa.Table:
        given = work(state)
        state.tally.rows_in, state.tally.rows_out = rows, rows + 1
        state.tally.nanoseconds += 10**9
        return given

    return told


def counts(shard: EmbeddedShard) -> list[tuple[int, ...]]:
    """Epoch, rows in, rows out, reads and writes of the epochs that are kept."""
    found = shard.work().epochs
    return [(one.epoch, one.rows_in, one.rows_out, one.reads, one.writes) for one in found]


def test_a_shard_knows_what_its_load_and_its_epochs_took(shard: EmbeddedShard) -> None:
    empty(shard)
    assert shard.work() == ShardWork(None, ())
    shard.load(3, 1, telling(putting(b"k", b"one", []), 40))
    loaded = Work(epoch=3, rows_in=40, rows_out=41, nanoseconds=10**9, reads=1, writes=1)
    assert shard.work() == ShardWork(loaded, ())
    shard.apply(5, 1, telling(putting(b"k", b"two", []), 2))
    (work,) = shard.work().epochs
    assert (work.epoch, work.rows_in, work.rows_out, work.reads, work.writes) == (5, 2, 3, 1, 1)
    assert 10**9 < work.nanoseconds < 2 * 10**9, "the outbox takes time too"
    assert shard.work().load == loaded


def test_an_epoch_counts_once_however_often_it_is_applied(shard: EmbeddedShard) -> None:
    empty(shard)
    for rows in (7, 8, 9):
        shard.apply(2, 1, telling(putting(b"k", b"one", []), rows))
    assert counts(shard) == [(2, 7, 8, 1, 1)]
    for rows in (20, 30):
        shard.load(2, 1, telling(putting(b"k", b"one", []), rows))
    assert counts(shard) == [], "a load begins anew"
    load = shard.work().load
    assert load is not None
    assert load.rows_in == 30


def test_an_epoch_that_fails_does_not_count(shard: EmbeddedShard) -> None:
    empty(shard)
    shard.apply(1, 1, telling(putting(b"k", b"one", []), 1))

    def fail(state: State) -> pa.Table:
        telling(putting(b"k", b"two", []), 50)(state)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        shard.apply(2, 1, fail)
    assert counts(shard) == [(1, 1, 2, 1, 1)]
    shard.apply(2, 1, telling(putting(b"k", b"two", []), 3))
    assert counts(shard) == [(1, 1, 2, 1, 1), (2, 3, 4, 1, 1)]


def test_only_the_last_epochs_are_kept(shard: EmbeddedShard) -> None:
    empty(shard)
    shard.load(1, 1, telling(putting(b"k", b"", []), 1_000))
    epochs = range(2, 2 * (KEPT_EPOCHS + 5), 2)
    for epoch in epochs:
        shard.apply(epoch, 1, telling(putting(b"k", b"v", []), epoch))
    assert [work[:2] for work in counts(shard)] == [(e, e) for e in epochs[-KEPT_EPOCHS:]]
    load = shard.work().load
    assert load is not None
    assert load.rows_in == 1_000


def test_reads_are_items_got_and_keys_looked_up_in_vain(shard: EmbeddedShard) -> None:
    """The same in an empty shard, where nothing needs to be looked up."""
    keys = [b"a", b"b", b"c"]

    def asked(state: State) -> pa.Table:
        state.get_many(keys)
        state.get_bags(keys)
        state.count_rows(keys[:2], [b"r", b"s"])
        state.first(b"a")
        list(state.scan_bags())
        return pa.table({})

    empty(shard)
    shard.apply(1, 1, asked)
    shard.apply(2, 1, lambda s: change(s, {b"a": b"v"}, {}) or pa.table({}))
    bags = {(b"a", b"r"): 1, (b"a", b"s"): 2, (b"b", b"r" * 700): 1}
    shard.apply(3, 1, lambda s: change(s, {b"b": b"v", b"a": b""}, bags) or pa.table({}))
    shard.apply(4, 1, asked)
    assert [work[3:] for work in counts(shard)] == [
        (3 + 3 + 2 + 1 + 0, 0),
        (0, 1),
        (3, 2 + 3),
        (3 + (3 + 1) + 2 + 1 + 3, 0),
    ]


@pytest.mark.parametrize("name", [b"load", b"work"])
def test_damage_of_what_epochs_took_is_noticed(shard: EmbeddedShard, name: bytes) -> None:
    empty(shard)
    shard.load(1, 1, putting(b"k", b"one", []))
    shard.apply(2, 1, putting(b"k", b"two", []))
    environment = shard.environment
    with environment.writing() as txn:
        name = shard._prefix + name
        item = txn.get(name, db=environment.dbs[-1])
        txn.put(name, item[:9] + bytes([item[9] ^ 1]) + item[10:], db=environment.dbs[-1])
    with pytest.raises(Damaged, match=r"1 of 1 items of state fail their checksum \(state "):
        shard.work()
    if name.endswith(b"work"):
        with pytest.raises(Damaged, match="fail their checksum"):
            shard.apply(3, 1, putting(b"k", b"three", []))
        assert shard.get(b"k") == b"two"


def test_a_shard_outlives_its_store_and_its_first_map(tmp_path: Path) -> None:
    path, calls = str(tmp_path / "store.ev"), list[bytes]()
    work = putting(b"k" * 700, b"v" * 300_000, calls)
    with closing(EmbeddedStore(path, create=True, map_size=1 << 16)) as store:
        new_shard(store, "operator", 3).apply(1, 1, work)
    assert len(calls) > 1, "the map was large enough at once"
    with closing(EmbeddedStore(path)) as store:
        shard = store.states.shard("operator", 3)
        assert shard.apply(1, 1, work)["before"].to_pylist() == [b""]
        assert shard.get(b"k" * 700) == b"v" * 300_000
        assert shard.size()[0] == 1


def test_an_output_of_any_size_is_stored_in_pieces(
    shard: EmbeddedShard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everview.stores.embedded.notes._PIECE", 100)
    large, small = pa.table({"n": range(1000)}), pa.table({"n": [7]})
    for epoch, output in enumerate((large, small, large.slice(0, 0), large), 1):
        shard.hand(epoch, 1, output)
        assert shard.output(epoch) == output
