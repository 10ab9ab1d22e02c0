"""A run's way into the library: made ready beside it, then copied in steps so short that nobody waits long for one.

Its row in `runs` is copied last: until then no question finds the run. The folder in which it was made ready stays
until it is in; one whose process was killed tells the next importer which rows to remove.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import duckdb

from fusionscope.storage import bundle, costs, database, findings, schema, summaries
from fusionscope.storage.database import StorageError
from fusionscope.storage.queries.library import has_run
from fusionscope.storage.reattach import reattach
from fusionscope.storage.records import TABLES

STAGED = ".staged-"
HOLD_S = 0.2  # for which a step holds the library, besides opening and closing it
PIECE = 5_000  # rows copied before the clock is read
PIECES = 16  # in a step at most: rows that are quickly copied take their time when they are committed


def take_in(library: Path, inbox: Path, folder: Path, manifest: bundle.Manifest) -> None:
    """Copy a verified bundle into a library that does not have its run, with all that is concluded from it.

    For the only importer at work. Raises a StorageError.
    """
    staged = inbox / f"{STAGED}{manifest.run_id}"
    with database.writable(staged):
        staged.mkdir()
    try:
        run = _made_ready(library, staged, folder, manifest)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)  # nothing is in the library yet
        raise
    _copy(library, run, folder.name)
    shutil.rmtree(staged, ignore_errors=True)


def unfinished(inbox: Path) -> list[str]:
    """Ids of runs that are on their way in, or whose importer was killed meanwhile."""
    return [folder.name.removeprefix(STAGED) for folder in inbox.glob(f"{STAGED}*")]


def forget_unfinished(library: Path, inbox: Path) -> None:
    """Remove what killed importers left of their runs; for the only importer at work. Raises a StorageError."""
    for run_id in unfinished(inbox):
        with database.open_for_reading(library) as con:
            is_in = has_run(con, run_id)
        for table in () if is_in else TABLES:
            with database.open_for_writing(library) as con:
                con.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
        shutil.rmtree(inbox / f"{STAGED}{run_id}", ignore_errors=True)


def _made_ready(library: Path, staged: Path, folder: Path, manifest: bundle.Manifest) -> Path:
    """A database of this run alone, with all that the library will hold of it."""
    run, run_id = staged / "run.duckdb", manifest.run_id
    with database.open_aside(run) as con:
        bundle.load(con, folder, manifest)
    reattach(library, run, run_id)
    with database.open_aside(run) as con:
        costs.write(con, run_id)
        findings.write(con, run_id)
        summaries.write(con, run_id)
    return run


def _copy(library: Path, run: Path, name: str) -> None:
    with database.open_aside(run) as con:
        pieces = deque(_pieces(con))
    while pieces:
        with database.open_for_writing(library) as con:
            database.attach(con, run, "staged")
            try:
                _step(con, pieces)
            except duckdb.Error as error:
                reason = str(error).splitlines()[0]
                raise StorageError(f"The bundle {name} could not be imported: {reason}") from error


def _pieces(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, int]]:
    """Table and first rowid of every piece; `runs` comes last."""
    for table in sorted(TABLES, key=lambda name: name == "runs"):
        ((end,),) = con.execute(f"SELECT coalesce(max(rowid) + 1, 0) FROM {table}").fetchall()
        yield from ((table, start) for start in range(0, end, PIECE))


def _step(con: duckdb.DuckDBPyConnection, pieces: deque[tuple[str, int]]) -> None:
    """Copy pieces in one transaction, until its time is up."""
    end = time.monotonic() + HOLD_S
    with schema.transaction(con):
        for _ in range(min(PIECES, len(pieces))):
            if time.monotonic() > end:
                break
            table, start = pieces.popleft()
            rows = f"SELECT * FROM staged.{table} WHERE rowid >= {start} AND rowid < {start + PIECE}"
            con.execute(f"INSERT INTO {table} BY NAME {rows}")
