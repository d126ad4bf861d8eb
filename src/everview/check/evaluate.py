"""What a view is at a cut: its definition over the tables' rows there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from everview.check.history import Document, History, Key, Read, Write
from everview.check.rows import Row, Rows, cell, rows_of
from everview.check.timeline import Contents, Cut, Timeline
from everview.errors import InvalidHistory

Tables = Mapping[str, Sequence[Document]]
Function = Callable[[Tables], Iterable[Document]]
_KEPT = 4_096


@dataclass(frozen=True)
class Definition:
    """A view: its query, in SQL or as a function from the tables' rows to the view's.

    `key` names the columns that tell its records apart. `types` are DuckDB types that columns of
    the result are cast to, for where Spark's differ. `columns` are those that tables, by name in
    lower case, had when the view was made, where that is known.
    """

    name: str
    query: str | Function
    key: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Evaluator(ABC):
    """The rows of one view at cuts of a timeline."""

    at_once = 1

    def __init__(self, definition: Definition, timeline: Timeline) -> None:
        self.definition = definition
        self.timeline = timeline
        self.key = tuple(name.lower() for name in definition.key)
        self._kept: dict[Cut, Rows] = {}

    @abstractmethod
    def each(self, cuts: Sequence[Cut]) -> Iterator[Rows]:
        """The view's rows at one cut after the other."""

    @abstractmethod
    def of_writes(self, writes: Sequence[Write]) -> Rows:
        """The view's rows if the tables had just the rows of these writes."""

    @abstractmethod
    def shown(self, read: Read) -> Rows:
        """The rows of a read, to compare."""

    def at(self, cut: Cut) -> Rows:
        """The view's rows at a cut."""
        self.prepare([cut])
        return self._kept[cut]

    def prepare(self, cuts: Sequence[Cut]) -> None:
        """Evaluate cuts that are asked for next, if the first is not known; at once, and with some
        that follow them."""
        if cuts[0] in self._kept:
            return
        if len(self._kept) > _KEPT:
            self._kept.clear()
        cuts = self._with_next(cuts[: self.at_once])
        new = [cut for cut in cuts if cut not in self._kept]
        self._kept.update(zip(new, self.each(new), strict=True))

    def wanted(self, read: Read, rows: Rows) -> Rows:
        """What of the view's rows a read should show."""
        return rows if read.key is None else self.of_record(self.record_of(read.key), rows)

    def of_record(self, record: Key, rows: Rows) -> Rows:
        return Counter({row: n for row, n in rows.items() if self.record(row) == record})

    def record(self, row: Row) -> Key:
        """The key of a row."""
        cells = dict(row)
        return tuple(cells.get(name) for name in self.key)

    def record_of(self, key: Key) -> Key:
        """The key that was read, to compare."""
        if len(key) != len(self.key):
            name = self.definition.name
            raise InvalidHistory(
                f"view {name}: a read has the key {list(key)}, but the view's key is "
                f"{', '.join(self.key) or 'not known'}; give it with --key {name}=COLUMN,..."
            )
        return tuple(self.cell(name, value) for name, value in zip(self.key, key, strict=True))

    def cell(self, column: str, value: object) -> object:
        return cell(value)

    def _with_next(self, cuts: Sequence[Cut]) -> list[Cut]:
        found = dict.fromkeys(cuts)
        waiting = deque(cuts)
        while waiting and len(found) < self.at_once:
            for further in self.timeline.after(waiting.popleft()):
                if further not in found:
                    found[further] = None
                    waiting.append(further)
        return list(found)


class FunctionEvaluator(Evaluator):
    """Calls a Python function with the rows of the tables, by name in lower case."""

    def __init__(self, definition: Definition, function: Function, history: History) -> None:
        self._tables = {write.table.lower() for write in history.writes}
        super().__init__(definition, Timeline(history, self._tables))
        self._function = function
        self._contents = Contents(self.timeline)

    def each(self, cuts: Sequence[Cut]) -> Iterator[Rows]:
        for cut in cuts:
            for _ in self._contents.move(cut):
                pass
            yield self.of_writes(list(self._contents.live.values()))

    def of_writes(self, writes: Sequence[Write]) -> Rows:
        tables: dict[str, list[Document]] = {table: [] for table in self._tables}
        for write in writes:
            if write.row is not None:
                tables[write.table.lower()].append(write.row)
        return rows_of(self._function(tables))

    def shown(self, read: Read) -> Rows:
        return rows_of(read.rows)
