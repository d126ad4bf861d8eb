"""Tasks get even shares of the work, and most slots stay when something changes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everview.ring.parts import dealt_parts, whole_parts
from everview.ring.ring import SPARE, UNEVEN, deal, dealt, unevenness

WORKS = st.lists(st.integers(0, 1000), min_size=4, max_size=80)
SPEEDS = st.lists(st.floats(0.5, 2), min_size=1, max_size=8)


@given(WORKS, SPEEDS)
def test_no_task_has_more_than_its_share_as_far_as_slots_allow_it(
    work: list[int], speeds: list[float]
) -> None:
    tasks = deal(work, speeds)
    assert len(tasks) == len(work)
    assert set(tasks) <= set(range(len(speeds)))
    loads = Counter[int]()
    for slot, task in enumerate(tasks):
        loads[task] += work[slot]
    for task, load in loads.items():
        share = sum(work) * speeds[task] / sum(speeds)
        largest = max(work[slot] for slot, owner in enumerate(tasks) if owner == task)
        assert load <= share * (1 + SPARE) + largest * max(1, speeds[task] / min(speeds)) + 1e-6


@pytest.mark.parametrize("tasks", [2, 4, 8])
def test_keys_by_zipf_s_law_keep_the_busiest_task_within_half_of_the_median(tasks: int) -> None:
    chance = np.random.default_rng(tasks)
    slots_of_keys = chance.integers(0, 64, 100_000)
    changes = np.minimum(chance.zipf(1.2, 1_000_000), 100_000) - 1
    work = np.bincount(slots_of_keys[changes], minlength=64).astype(float)
    work = np.minimum(work, work.sum() / tasks)  # no slot is more than a task's share
    owners = np.array(deal(work.tolist(), [1.0] * tasks))
    loads = np.bincount(owners, work, tasks)
    assert loads.max() <= 1.5 * np.median(loads)
    assert unevenness(owners.tolist(), work.tolist(), [1.0] * tasks) <= UNEVEN


def test_most_slots_stay_when_a_task_comes_or_goes() -> None:
    work = [1.0] * 256
    few, more = deal(work, [1.0] * 4), deal(work, [1.0] * 5)
    moved = sum(one != other for one, other in zip(few, more, strict=True))
    assert moved <= 256 * 0.45, "a fifth has to move; dealing by modulo would move four fifths"
    to_others = sum(one != other and other != 4 for one, other in zip(few, more, strict=True))
    assert to_others <= 256 * 0.25


def test_a_faster_task_gets_more() -> None:
    loads = Counter(deal([1.0] * 512, [2.0, 1.0, 1.0]))
    assert loads[0] > 1.5 * max(loads[1], loads[2])


def test_slots_are_dealt_out_anew_only_if_that_is_worth_it() -> None:
    even = [1.0] * 64
    assert dealt(even, [1.0, 1.0], 2, ()) == ()
    uneven = [10.0 if slot in (0, 2, 4) else 1.0 for slot in range(64)]
    first = dealt(uneven, [1.0, 1.0], 2, ())
    assert unevenness(first, uneven, [1.0, 1.0]) < 1.11
    slightly = [work + slot % 3 / 20 for slot, work in enumerate(uneven)]
    assert dealt(slightly, [1.0, 1.0], 2, first) == first, "still even enough"
    assert dealt(even, [1.0, 1.0], 2, first) == (), "whole shards are even again"
    one_hot = [100.0, *[0.0] * 63]
    assert dealt(one_hot, [1.0, 1.0], 2, ()) == (), "nothing would be gained"
    assert set(dealt(even, [1.0] * 3, 2, ())) == {0, 1, 2}, "other tasks than shards"


@given(st.data())
def test_every_place_is_in_one_part_of_one_shard(data: st.DataObject) -> None:
    shards = data.draw(st.sampled_from([(12,), (12, 6), (12, 6, 2, 0), (3, 5, 7)]))
    slots = data.draw(st.sampled_from([4, 64, 100]))
    tasks = tuple(data.draw(st.lists(st.integers(0, 4), min_size=slots, max_size=slots)))
    whole, parts = whole_parts(shards, slots, tasks), dealt_parts(shards, slots, tasks)
    for slot in range(slots):
        part = parts.all[parts.of_place[slot]]
        assert part.slots is not None
        assert slot in part.slots
        assert part.shard == shards[slot % len(shards)]
        assert whole.all[whole.of_place[slot]].shard == part.shard
        assert len({tasks[other] for other in part.slots}) == 1
    for number, part in enumerate(parts.all):
        assert parts.of_place[part.place] == number
        assert whole.all[whole.of_place[part.place]].shard == part.shard
    for number, part in enumerate(whole.all):
        assert whole.of_place[part.place] == number
    assert len({part.place for part in (*parts.all, *whole.all)}) == len(parts) + len(whole)


def test_without_tasks_a_part_is_a_shard_by_the_same_hash_as_ever() -> None:
    shards = (12, 6, 2, 0)
    whole = whole_parts(shards, 64, ())
    hashes = np.random.default_rng(1).integers(-(2**62), 2**62, 1000)
    assert [whole.all[n].shard for n in whole.of_place[hashes % 64]] == [
        shards[n] for n in hashes % 4
    ]
