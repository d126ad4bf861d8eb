"""Operators that an engine left out are run after all, before the epoch is committed.

Operators write their state while an engine computes an answer. An optimizer may find that no row of
the answer needs an operator, and skip it: below a condition that is never true, say. So every task
that must run notes its end in the state it writes. The maintainer looks for these notes, and runs
an operator that has none in a job of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame

from everview.errors import EngineFailed
from everview.programs.program import Duty
from everview.programs.step import Step
from everview.stores import shared_store


def run_left_out(duties: Iterable[Duty], step: Step) -> int:
    """Run each duty that lacks the notes of some task; returns the view rows that this touched.

    Raises `EngineFailed` if the engine leaves out a duty even then, though it has rows.
    """
    rows = 0
    for duty in duties:
        if _has_ended(duty, step):
            continue
        rows += touched(duty.job())
        if not _has_ended(duty, step) and not duty.input.isEmpty():
            raise EngineFailed(
                f"the engine did not run {duty.name}, so epoch {step.epoch} is not committed; "
                "nothing is lost, and the next `everview run` or db.maintain() repeats the epoch"
            )
    return rows


def _has_ended(duty: Duty, step: Step) -> bool:
    first = shared_store(step.address, readonly=True).states.shard(duty.state, step.shards[0])
    return first.ended_tasks(step.epoch, step.token) >= duty.tasks


def touched(job: DataFrame) -> int:
    """Run a job; returns how many view rows it touched."""
    return sum(job.toArrow()["touched"].to_pylist())  # rows for people would take longer to make
