"""A store: the library of imported runs, and the inbox through which they come."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import duckdb

from fusionscope.storage import bundle, database, findings, intake, notes, redact, schema, spool, summaries
from fusionscope.storage.database import Locked, StorageError, writable
from fusionscope.storage.queries import library as queries
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import TABLES

DEFAULT_STORE = "fusionscope-store"
CONCLUDED_AT_ONCE = 50
_DONE = ".done-"

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class RunNotFound(StorageError):
    """No run, or several, answer to a reference."""


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    imported: list[str]  # run ids
    waiting: int  # bundles left for another importer, or until the library is free
    rejected: list[tuple[str, str]]  # name of a bundle and why it was left where it is


def default_address() -> Path:
    """The store that is meant when none is named: $FUSIONSCOPE_STORE, else ./fusionscope-store."""
    return Path(os.environ.get("FUSIONSCOPE_STORE") or DEFAULT_STORE)


class Library:
    """A store at a directory; made when it is first written or read. Every method raises StorageError."""

    def __init__(self, address: str | Path) -> None:
        self.store = Path(address).expanduser().absolute()
        self.path = self.store / "library.duckdb"
        self.inbox = self.store / "inbox"

    def ask(
        self,
        query: Callable[Concatenate[duckdb.DuckDBPyConnection, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """The answer of `query(con, *args)` on a connection that is opened for it and closed."""
        with database.open_for_reading(self.path) as con:
            return query(con, *args, **kwargs)

    def write(
        self,
        change: Callable[Concatenate[duckdb.DuckDBPyConnection, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """The answer of `change(con, *args)` on a connection that may write, held for no longer than the change."""
        with database.open_for_writing(self.path) as con:
            return change(con, *args, **kwargs)

    def find(self, reference: str) -> str:
        """The id of the run meant by an id, by the name of a run (the latest of it) or by the beginning of an id."""
        found = self.ask(queries.runs_meant_by, reference) if reference else []
        if not found:
            raise RunNotFound(f"There is no run {reference!r} in {self.store}.")
        if len(found) > 1:
            raise RunNotFound(f"Several runs begin with {reference!r}: {', '.join(found)}.")
        return found[0]

    def check(self) -> list[str]:
        """What is inconsistent in the library, a sentence each."""
        return self.ask(queries.inconsistencies, intake.unfinished(self.inbox))

    def has_news(self) -> bool:
        """Whether there is anything in the inbox: a run, or one that is being recorded."""
        return self.inbox.is_dir() and any(self.inbox.iterdir())

    def import_inbox(self, progress: Callable[[int, int], None] | None = None) -> ImportReport:
        """Take every published run into the library, and those whose process died as partial runs.

        Safe to call at any time from any number of processes: one imports, the others return at once. A run that is
        there already is not imported twice; of its notes those come in that are new. A bundle that is no good stays
        where it is and is reported, and does not stop the others. `progress(done, total)` is called after each bundle.
        """
        with self._sole_importer(wait=False) as sole:
            if not sole:
                return ImportReport([], len(self._bundles()), [])
            return self._import_all(self._recover(), progress)

    def conclude_older(self) -> None:
        """Conclude what runs say that came before conclusions did, some at a time so that nobody waits long."""
        with self._sole_importer(wait=False) as sole:
            if not sole or not self.path.exists():
                return
            for run_id in self.ask(queries.without_conclusions, CONCLUDED_AT_ONCE):
                with database.open_for_writing(self.path) as con:
                    findings.write(con, run_id)
                    summaries.write(con, run_id)

    def import_path(self, path: str | Path) -> str:
        """Take the bundle at `path`, a directory or an exported file, into the library; returns its run id."""
        path = Path(path).resolve()  # messages name it by its last part
        with tempfile.TemporaryDirectory(prefix="fusionscope-") as scratch:
            folder = path
            if not path.is_dir():
                folder = Path(scratch) / path.name
                bundle.unpack(path, folder)
            with self._sole_importer(wait=True):
                return self._import(folder)

    def export_run(self, run_id: str, path: str | Path, *, source: bool = True) -> Path:
        """Write a run of the library as one bundle file, which `import_path` takes anywhere; returns its path.

        Without `source` it leaves out code, folders and host names, and with them the notes, which may quote them.
        """
        path = Path(path)
        rows = self.ask(_rows_of, run_id)
        if not rows["runs"]:
            raise RunNotFound(f"There is no run {run_id!r} in {self.store}.")
        if not source:
            host = rows["runs"][0].host
            rows = {table: list(redact.without_source(table, records, host)) for table, records in rows.items()}
        with writable(path), tempfile.TemporaryDirectory(prefix="fusionscope-") as scratch:
            bundle.write(run_id, rows, Path(scratch) / "bundle")
            bundle.pack(Path(scratch) / "bundle", path)
        return path

    def _bundles(self) -> list[Path]:
        """Published runs, oldest first."""
        if not self.inbox.is_dir():
            return []
        published: dict[Path, int] = {}
        for path in self.inbox.iterdir():
            with suppress(FileNotFoundError):  # another importer has taken it in meanwhile
                if path.is_dir() and not path.name.startswith("."):
                    published[path] = path.stat().st_mtime_ns
        return sorted(published, key=published.__getitem__)

    def _import_all(self, rejected: list[tuple[str, str]], progress: Callable[[int, int], None] | None) -> ImportReport:
        bundles, imported = self._bundles(), []
        for done, folder in enumerate(bundles, start=1):
            try:
                imported.append(self._import(folder))
                _remove(folder)
            except Locked:
                return ImportReport(imported, len(bundles) - done + 1, rejected)
            except StorageError as error:
                rejected.append((folder.name, str(error)))
            if progress:
                progress(done, len(bundles))
        return ImportReport(imported, 0, rejected)

    def _import(self, folder: Path) -> str:
        """The library is held for moments only, in which others wait to read it or to write notes."""
        manifest = bundle.verify(folder)
        if self.ask(queries.has_run, manifest.run_id):
            self.write(_take_new_notes, folder, manifest)
        else:
            intake.take_in(self.path, self.inbox, folder, manifest)
        return manifest.run_id

    def _recover(self) -> list[tuple[str, str]]:
        """Turn recordings whose process has died into bundles; returns those that could not be, and why."""
        rejected = []
        for recording in self.inbox.glob(f"{spool.RECORDING}*"):
            try:
                spool.recover(recording)
            except StorageError as error:
                rejected.append((recording.name, str(error)))
        return rejected

    def _clear_rubbish(self) -> None:
        """What a process left that was killed while it took in a bundle, or removed an imported one."""
        intake.forget_unfinished(self.path, self.inbox)
        for path in self.inbox.glob(f"{_DONE}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _sole_importer(self, *, wait: bool) -> Iterator[bool]:
        """Whether this is the only importer at work; the kernel lets go of the lock if the process dies."""
        with writable(self.store):
            self.inbox.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.store / ".importing", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            sole = True
        except BlockingIOError:
            sole = False
        try:
            if sole:
                self._clear_rubbish()
            yield sole
        finally:
            os.close(lock)


def _take_new_notes(con: duckdb.DuckDBPyConnection, folder: Path, manifest: bundle.Manifest) -> None:
    with schema.transaction(con):
        bundle.load_new(con, folder, manifest, "notes", "note_id")
        notes.replay(con, manifest.run_id)


def _rows_of(con: duckdb.DuckDBPyConnection, run_id: str) -> dict[str, list[Any]]:
    return {table: records_of(con, record, run_id) for table, record in TABLES.items()}


def _remove(folder: Path) -> None:
    """Out of sight by one rename first: half a bundle would be taken for a damaged one."""
    with writable(folder):
        shutil.rmtree(folder.rename(folder.with_name(f"{_DONE}{folder.name}")))
