"""A run while it is recorded: a folder of JSON lines that outlives its process, and becomes a bundle at the end."""

from __future__ import annotations

import fcntl
import os
import shutil
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fusionscope.storage import bundle
from fusionscope.storage.database import StorageError, require_possible, writable
from fusionscope.storage.records import TABLE_OF, TABLES, Run

RECORDING = ".recording-"
ENDED_EARLY = "the process ended before the run did"
_LOCK = "lock"
_RUN = "run.json"
_BUNDLE = "bundle"


class Spool:
    """A run being recorded by this process, and by none of its forks: in a forked child every method does nothing."""

    def __init__(self, inbox: Path, run_id: str, lock: int) -> None:
        self.run_id = run_id
        self.folder = inbox / f"{RECORDING}{run_id}"
        self._inbox = inbox
        self._lock: int | None = lock
        _open_spools.add(self)

    @classmethod
    def create(cls, store: Path, run: Run) -> Spool:
        """Begin a run in `store`. Until it is published it stands there as partial. Raises StorageError."""
        if not bundle.is_run_id(run.run_id):
            raise StorageError(f"{run.run_id!r:.80} is no run id: letters, digits, '-' and '_' only.")
        require_possible(store)
        inbox = store / "inbox"
        with writable(store):
            inbox.mkdir(parents=True, exist_ok=True)
            # Locked before it bears the name that `recover` looks for.
            aside = inbox / f".new-{run.run_id}"
            aside.mkdir()
            lock = os.open(aside / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (aside / _RUN).write_bytes(bundle.encode(replace(run, status="partial", status_reason=ENDED_EARLY)))
            aside.rename(inbox / f"{RECORDING}{run.run_id}")
        return cls(inbox, run.run_id, lock)

    def append(self, records: Iterable[Any]) -> None:
        """Write records to disk. One that does not fit its table is left out; the first such error is raised last."""
        if self._lock is None:
            return
        lines: dict[str, list[bytes]] = {}
        errors: list[Exception] = []
        for record in records:
            try:
                lines.setdefault(TABLE_OF[type(record)], []).append(bundle.encode(record))
            except (TypeError, ValueError) as error:
                errors.append(error)
        with writable(self.folder):
            for table, encoded in lines.items():
                _append(self.folder / f"{table}.jsonl", b"".join(encoded))
        if errors:
            raise errors[0]

    def rewrite(self, records: Sequence[Any]) -> None:
        """Put records in the place of all that their table has so far: what could only be said at the end."""
        if self._lock is None or not records:
            return
        path = self.folder / f"{TABLE_OF[type(records[0])]}.jsonl"
        with writable(self.folder):
            new = path.with_suffix(".new")
            new.write_bytes(b"".join(bundle.encode(record) for record in records))
            new.replace(path)

    def publish(self, run: Run) -> Path:
        """End the run with its final row and make it visible by one rename; returns the bundle. Raises StorageError."""
        if self._lock is None:
            raise StorageError(
                "This process does not hold the recording: it was forked from the one that does, or it is closed."
            )
        with writable(self.folder):
            final = self.folder / f"{_RUN}.new"
            final.write_bytes(bundle.encode(run))
            final.replace(self.folder / _RUN)
        target = _seal(self._inbox, self.run_id)
        self.close()
        return target

    def discard(self) -> None:
        """Forget the run."""
        if self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.close()

    def close(self) -> None:
        """Let go of the recording without publishing it; in a forked child the parent keeps its hold."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


_open_spools: weakref.WeakSet[Spool] = weakref.WeakSet()


def _close_in_child() -> None:
    """A DataLoader worker that outlives its parent must not keep the recording alive."""
    for spool in list(_open_spools):
        spool.close()


os.register_at_fork(after_in_child=_close_in_child)


def recover(recording: Path) -> Path | None:
    """Publish the folder of a run whose process has ended; None while that process lives. Raises StorageError."""
    try:
        lock = os.open(recording / _LOCK, os.O_RDWR)
    except (FileNotFoundError, PermissionError):  # published just now, or another user's
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (recording / _LOCK).exists():  # published between the two lines above
            return None
        return _seal(recording.parent, recording.name.removeprefix(RECORDING))
    except BlockingIOError:
        return None
    finally:
        os.close(lock)


def _append(path: Path, data: bytes) -> None:
    """One write, straight to the kernel: nothing is buffered that a kill would lose or a fork would write twice."""
    with path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):
                raise OSError(None, "the device is full")
        except OSError:
            file.truncate(before)
            raise


def _seal(inbox: Path, run_id: str) -> Path:
    """Turn a recording folder into a bundle. Nothing is visible before the rename; afterwards only rubbish is left."""
    folder, target = inbox / f"{RECORDING}{run_id}", inbox / run_id
    with writable(folder):
        if not target.exists():
            shutil.rmtree(folder / _BUNDLE, ignore_errors=True)
            lines = {table: folder / f"{table}.jsonl" for table in TABLES} | {"runs": folder / _RUN}
            written = {table: path for table, path in lines.items() if path.exists()}
            for path in written.values():
                _drop_torn_line(path)
            bundle.seal(run_id, written, folder / _BUNDLE)
            (folder / _BUNDLE).rename(target)
        shutil.rmtree(folder)
    return target


def _drop_torn_line(path: Path) -> None:
    """A line is whole when its newline arrived."""
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        os.truncate(path, data.rfind(b"\n") + 1)
