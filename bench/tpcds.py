"""How much of SQL can be maintained: the TPC-DS queries as views, held exact under random changes.

    python bench/tpcds.py [--only q1,q5] [--scale 0.01] [--share 1] [--engine sail] [--epochs 3]
                          [--changes 300] [--seed 1] [--together 10] [--limit 100]
                          [--queries DIR] [--json FILE] [--markdown FILE] [--directory DIR]

A query is `refused`, with the reason, or it is maintained: `incremental`, or `by touched group` if
some of it recomputes the groups that a change touches. Maintained views are put together in
databases of ten, loaded, and changed: inserts, updates, deletes and rows that come back in all
tables they read, half of them such as the queries ask for (tests/tpcds/wishes.py). After loading
and after every epoch a view must equal DuckDB's recomputation over the same tables, but for
rounding and ties at a LIMIT (tests/tpcds/oracle.py); where DuckDB differs or can't run the query,
Spark decides, and the table says so. `epoch s` is of an epoch with all the views of a database.

The queries are read from ../shared/tpcds/queries, beside the project; what is changed in them is
said in tests/tpcds/queries.py. `--share 4` keeps the sales of every fourth customer; `--limit 5`
takes LIMIT 5 for the LIMIT 100 of most queries, which few results reach. The results are written
to bench/results/tpcds.json, those of some queries only if --json says where.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))  # the tests share tables, changes and oracle with this

from tests.tpcds import queries, tables  # noqa: E402
from tests.tpcds.queries import Query  # noqa: E402
from tests.tpcds.trial import (  # noqa: E402
    BY_GROUP,
    FAILED,
    INCREMENTAL,
    REFUSED,
    Outcome,
    Trial,
    create,
)

import everview as ev  # noqa: E402

_RESULTS = PROJECT / "bench" / "results" / "tpcds.json"
_COLUMNS = (
    "query",
    "verdict",
    "rounds",
    "state rows",
    "rows",
    "changed",
    "epoch s",
    "exact",
    "reason",
)
_REASON = 100
_COLUMNS_OF_PROSE = 100
_PAGE = """# TPC-DS

`python bench/tpcds.py --markdown docs/reference/tpcds.md` wrote this page: the TPC-DS queries as
views. The benchmark compares each view with a recomputation after its load and after each of
{options.epochs} epochs of {options.changes} random changes (scale factor {options.scale:g},
{options.engine}).

{summary}

`rounds` are the rounds of an epoch, `rows` the greatest number of rows that the view had, `changed`
the number of epochs that changed it, and `epoch s` the seconds of an epoch with all views of a
database, up to {options.together}. `exact` says whether the view equals the recomputation by
DuckDB, or by Spark where DuckDB rounds differently or can't run the query. `reason` says why a view
is refused, or what of it is not incremental.

{table}
"""


def main() -> None:
    options = _options()
    chosen = queries.read(Path(options.queries), options.limit)
    if options.only:
        chosen = {name: chosen[name] for name in options.only.split(",")}
    with tempfile.TemporaryDirectory(prefix="everview-bench-", dir=options.directory) as directory:
        base = _base(Path(options.directory or directory), options)
        outcomes = list(_tried(base, Path(directory), list(chosen.values()), options))
    print()
    for line in _table(outcomes):
        print(line)
    print(_summary(outcomes))
    if options.json:
        Path(options.json).write_text(json.dumps(_document(outcomes, options), indent=2) + "\n")
    if options.markdown:
        Path(options.markdown).write_text(_markdown(outcomes, options))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", help="names of queries, q1,q5")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--share", type=int, default=1, help="one of so many customers and items")
    parser.add_argument("--engine", choices=["sail", "spark"], default="sail")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--changes", type=int, default=300, help="in each epoch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", type=int, default=10, help="views in one database")
    parser.add_argument("--limit", type=int, default=100, help="instead of LIMIT 100")
    parser.add_argument("--queries", default=str(queries.DIRECTORY), help="where the queries are")
    parser.add_argument("--json", help="write the results here; all queries: bench/results")
    parser.add_argument(
        "--markdown", help="write the table here, as docs/reference/tpcds.md has it"
    )
    parser.add_argument("--directory", help="keep the tables here, and use them in the next run")
    options = parser.parse_args()
    if not options.only and options.json is None:
        options.json = str(_RESULTS)
    return options


def _base(directory: Path, options: argparse.Namespace) -> Path:
    """A database with the tables, and no log."""
    path = directory / f"tpcds-{options.scale:g}-{options.share}.ev"
    if path.exists():
        return path
    files = directory / f"tpcds-{options.scale:g}"
    files.mkdir(exist_ok=True)
    made = path.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    with ev.open(made, create=True, durability="never") as db:
        tables.create(db, tables.rows(files, options.scale, options.share))
    return made.rename(path)


def _tried(
    base: Path, directory: Path, chosen: list[Query], options: argparse.Namespace
) -> Iterator[Outcome]:
    """The outcomes of all queries, as many views in one database as the options say."""
    left = list(chosen)
    while left:
        yield from _together(base, directory, left, options)


def _together(
    base: Path, directory: Path, left: list[Query], options: argparse.Namespace
) -> list[Outcome]:
    """Takes queries off `left` until a database has enough views, and tries those.

    If they can't be maintained together, each is tried alone.
    """
    taken: dict[str, Query] = {}
    outcomes: list[Outcome] = []
    # each at a path of its own: an engine keeps what it opened
    path = shutil.copytree(base, Path(tempfile.mkdtemp(dir=directory)) / "tpcds.ev")
    try:
        with ev.open(path, engine=options.engine, durability="never") as db:
            while left and sum(o.maintained for o in outcomes) < options.together:
                query = left.pop(0)
                taken[query.name] = query
                outcomes.append(create(db, query))
                _tell(f"{query.name}: {outcomes[-1].verdict} {_cut(outcomes[-1].reason)}")
            if any(outcome.maintained for outcome in outcomes):
                trial = Trial(db, taken.values(), outcomes, seed=options.seed, tell=_tell)
                trial.run(options.epochs, options.changes)
            return outcomes
    except Exception as error:
        _tell(f"{type(error).__name__}: {error}")
        if len(taken) == 1:
            outcomes[0].fail(f"{type(error).__name__}: {error}")
            return outcomes
    finally:
        shutil.rmtree(path)
    return [
        outcome
        for tried in outcomes
        for outcome in (
            _together(base, directory, [taken[tried.query]], options)
            if tried.maintained
            else [tried]
        )
    ]


def _tell(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _cut(reason: str) -> str:
    reason = " ".join(reason.split())
    return reason if len(reason) <= _REASON else reason[: _REASON - 1] + "…"


def _cells(outcome: Outcome) -> tuple[str, ...]:
    numbers = ("",) * 6
    if outcome.maintained:
        exact = "yes" if outcome.exact else "NO"
        numbers = (
            str(outcome.rounds),
            f"{outcome.state_rows:,}",
            f"{outcome.rows:,}",
            str(outcome.changed),
            f"{outcome.epoch_seconds:.1f}",
            exact if outcome.oracle == "duckdb" else f"{exact}, oracle: {outcome.oracle}",
        )
    reason = outcome.wrong[0] if outcome.wrong else outcome.reason
    return outcome.query, outcome.verdict, *numbers, _cut(reason)


def _table(outcomes: list[Outcome]) -> Iterator[str]:
    rows = [_COLUMNS, *map(_cells, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(
            f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def _summary(outcomes: list[Outcome]) -> str:
    verdicts = Counter(outcome.verdict for outcome in outcomes)
    maintained = sum(outcome.maintained for outcome in outcomes)
    told = [f"{verdicts[verdict]} {verdict}" for verdict in (INCREMENTAL, BY_GROUP, REFUSED)]
    if verdicts[FAILED]:
        told.append(f"{verdicts[FAILED]} {FAILED}")
    exact = sum(outcome.exact for outcome in outcomes)
    return f"{len(outcomes)} queries: {', '.join(told)}; {exact} exact of {maintained} maintained"


def _document(outcomes: list[Outcome], options: argparse.Namespace) -> dict[str, Any]:
    asked = ("scale", "share", "engine", "epochs", "changes", "seed", "together", "limit")
    return {
        **{name: getattr(options, name) for name in asked},
        "summary": _summary(outcomes),
        "queries": [{**asdict(outcome), "exact": outcome.exact} for outcome in outcomes],
    }


def _markdown(outcomes: list[Outcome], options: argparse.Namespace) -> str:
    rows = [[cell.replace("|", "\\|") for cell in _cells(outcome)] for outcome in outcomes]
    lines = [_COLUMNS, ["---"] * len(_COLUMNS), *rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in lines)
    summary = fill(f"**{_summary(outcomes)}.**", _COLUMNS_OF_PROSE)
    return _PAGE.format(summary=summary, table=table, options=options)


if __name__ == "__main__":
    main()
