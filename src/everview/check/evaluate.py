"""The rows of a view at a cut: its query over the tables' rows there."""

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
_MOST_KEPT_CUTS = 4_096


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
        self._rows_at: dict[Cut, Rows] = {}

    @abstractmethod
    def rows_at_each(self, cuts: Sequence[Cut]) -> Iterator[Rows]:
        """The view's rows at one cut after the other."""

    @abstractmethod
    def rows_of_writes(self, writes: Sequence[Write]) -> Rows:
        """The view's rows if the tables had just the rows of these writes."""

    @abstractmethod
    def rows_read(self, read: Read) -> Rows:
        """The rows of a read, to compare."""

    def at(self, cut: Cut) -> Rows:
        """The view's rows at a cut."""
        self.prepare([cut])
        return self._rows_at[cut]

    def prepare(self, cuts: Sequence[Cut]) -> None:
        """Evaluate cuts that are needed next, together with some that follow them, if the first is
        not evaluated yet."""
        if cuts[0] in self._rows_at:
            return
        if len(self._rows_at) > _MOST_KEPT_CUTS:
            self._rows_at.clear()
        cuts = self._with_next(cuts[: self.at_once])
        new = [cut for cut in cuts if cut not in self._rows_at]
        self._rows_at.update(zip(new, self.rows_at_each(new), strict=True))

    def expected_rows(self, read: Read, rows: Rows) -> Rows:
        """Those of the view's rows that a read should show."""
        return rows if read.key is None else self.rows_of_record(self.record_of(read.key), rows)

    def rows_of_record(self, record: Key, rows: Rows) -> Rows:
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
        selected = dict.fromkeys(cuts)
        queue = deque(cuts)
        while queue and len(selected) < self.at_once:
            for next_cut in self.timeline.after(queue.popleft()):
                if next_cut not in selected:
                    selected[next_cut] = None
                    queue.append(next_cut)
        return list(selected)


class FunctionEvaluator(Evaluator):
    """Calls a Python function with the rows of the tables, by name in lower case."""

    def __init__(self, definition: Definition, function: Function, history: History) -> None:
        self._tables = {write.table.lower() for write in history.writes}
        super().__init__(definition, Timeline(history, self._tables))
        self._function = function
        self._contents = Contents(self.timeline)

    def rows_at_each(self, cuts: Sequence[Cut]) -> Iterator[Rows]:
        for cut in cuts:
            for _ in self._contents.move(cut):
                pass
            yield self.rows_of_writes(list(self._contents.live.values()))

    def rows_of_writes(self, writes: Sequence[Write]) -> Rows:
        tables: dict[str, list[Document]] = {table: [] for table in self._tables}
        for write in writes:
            if write.row is not None:
                tables[write.table.lower()].append(write.row)
        return rows_of(self._function(tables))

    def rows_read(self, read: Read) -> Rows:
        return rows_of(read.rows)
