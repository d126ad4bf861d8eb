"""States: what operators and views remember, in shards.

The law of states, for every store: **the work of epoch e sees the state as of the committed epoch
before e, whatever an earlier attempt at e wrote, and its writes count as of e.** So a task may run
again, in another process, after a crash, or beside itself, and the outcome is the same. A store
may keep the law by one transaction that holds the state, the epoch and the output; or by cells
whose version is the epoch, read below e and written at e. It rests on two promises of its callers:
an intent never changes once it is written, and operators are deterministic.

Every write comes with the token of a lease. A superseded maintainer writes nothing any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa

from everview.state import State
from everview.stores.work import ShardWork, Tally

SUSPECT = (
    "the machine crashed before the state of all views was on disk, so they may lack changes; "
    "the next `everview run DB --once` or db.maintain() loads them again from the tables"
)


class CountedState(State, Protocol):
    """A shard's state inside of one step, with a tally of its reads and writes.

    A step sets `log` to what its followers will read.
    """

    tally: Tally
    log: pa.Table | None


T = TypeVar("T")
Work = Callable[[CountedState], pa.Table]


class Shard(ABC):
    """One shard of an operator's state, or of a view's rows."""

    @abstractmethod
    def apply(
        self,
        epoch: int,
        token: int,
        work: Work,
        log_after: int | None = None,
        slots: tuple[int, ...] | None = None,
    ) -> pa.Table:
        """Do `work` on the state for an epoch, and return its output.

        A second call for the same epoch changes nothing and returns the same output. Raises
        `Superseded` if a newer token is known here, or a later epoch.

        `slots` says that this is the work of some slots only, in an epoch whose other calls are
        about other slots; None means all. All calls of an epoch deal the slots out in one way.

        If `log_after` is an epoch, the shard has a log: of this epoch it gets the state's `log`,
        and of earlier ones it keeps what came after `log_after`. Else the log is deleted.
        """

    @abstractmethod
    def load(self, epoch: int, token: int, work: Work) -> pa.Table:
        """Do `work` on an empty state, which then is that of the epoch.

        May be done again, as long as no later epoch was applied. Raises as `apply` does.
        """

    @abstractmethod
    def hand(self, epoch: int, token: int, output: pa.Table) -> None:
        """Store an output without state; another job of the same load reads it."""

    @abstractmethod
    def output(self, epoch: int, slots: tuple[int, ...] | None = None) -> pa.Table | None:
        """The output of an epoch, if that is the last one applied; None if there was nothing to do
        in it. Of some `slots`, as they were dealt out."""

    @abstractmethod
    def is_at(self, epoch: int) -> bool:
        """Whether this epoch is the last one that was applied, loaded or handed over here."""

    @abstractmethod
    def log(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The log of the epochs with after < epoch <= upto, in their order."""

    @abstractmethod
    def note_end(self, epoch: int, token: int, task: int) -> None:
        """Note that a task of the operator came to its end in an epoch, whatever shards it had.

        The first shard of an operator has these notes. To note a task again changes nothing.
        """

    @abstractmethod
    def ended_tasks(self, epoch: int, token: int) -> int:
        """How many tasks of an epoch came to their end, for the maintainer with this token."""

    @abstractmethod
    def note_rows(self, token: int, name: str, rows: int) -> None:
        """Note how many rows of something a load has read; replaces an earlier note of the name."""

    @abstractmethod
    def noted_rows(self) -> dict[str, int]:
        """The newest note of each name."""

    @abstractmethod
    def get(self, key: bytes) -> bytes:
        """The value of a key; empty if there is none."""

    @abstractmethod
    def values(self, prefix: bytes = b"") -> Iterator[list[bytes]]:
        """All values, in batches, as of one moment: of keys that begin with a prefix. Of a very
        long prefix a store may look at a part only, and give more values."""

    @abstractmethod
    def bags(self) -> Iterator[tuple[list[bytes], list[int]]]:
        """All rows of bags and how often each is there, in batches, as of one moment."""

    @abstractmethod
    def work(self) -> ShardWork:
        """The work of its load and its last epochs, also of epochs that are not committed yet."""

    @abstractmethod
    def size(self) -> tuple[int, int]:
        """How many rows the state has, and its bytes."""


class StateReader(ABC):
    """Shards to read: as they are now, or as a pin has them."""

    @abstractmethod
    def shard(self, state: str, number: int) -> Shard:
        """A shard. Raises `Damaged` if it is gone."""

    @property
    @abstractmethod
    def is_suspect(self) -> bool:
        """Whether the machine may have lost some state: it went down before all was on its disk."""


class States(StateReader):
    """Shards to read and write.

    A state may be named `volume.name`, with a name of 12 hexadecimal digits: a store may store the
    states of a volume together. What is written for long while others must not wait belongs in a
    volume of its own.
    """

    @property
    @abstractmethod
    def volume(self) -> str:
        """The volume for new states that have no reason to be in another."""

    @abstractmethod
    def renew(self, states: Collection[str]) -> None:
        """Let `volume` be none of those that have these states, as their files may be damaged."""

    def together(self, work: Callable[[], T]) -> T:
        """Do work, and return its result. A store may let all that it writes to shards in this
        thread count at once, which takes less time.

        If a write raises inside of it, this raises too; `work` may be done again from its start.
        """
        return work()

    @abstractmethod
    def create(self, state: str, shards: Sequence[int]) -> None:
        """Make a state with empty shards."""

    @abstractmethod
    def names(self) -> list[str]:
        """The states that there are, also those that no view knows."""

    @abstractmethod
    def drop(self, *states: str, used: Collection[str] = ()) -> None:
        """Delete states; their readers may finish. Of a volume in which no state is `used`, all may
        go at once."""

    def sweep(self) -> bool:
        """Delete some of what dropped states may have left, in a moment; whether more is left."""
        return False

    @abstractmethod
    def fence(self, states: Collection[str], token: int) -> dict[str, str]:
        """Shut maintainers with older tokens out of states; returns what each is named from now on.

        A store may go on with a copy of a state, if an older maintainer can't be shut out of it.
        """

    @abstractmethod
    def begin(self, token: int) -> None:
        """Call it before state is written: it notes durably, where that is needed, that a crash of
        the machine may cost some of it."""

    @abstractmethod
    def settle(self, token: int) -> None:
        """Hand all state to the device, and note that it is there. Raises `WriteError`."""
