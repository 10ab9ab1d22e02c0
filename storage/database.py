"""The only place that opens DuckDB, with its locks, versions and errors in plain sentences."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import duckdb

from fusionscope.storage import schema

_Config = dict[str, str | bool | int | float | list[str]]

LOCK_TIMEOUT_S = 10.0
_RETRY_S = 0.01

# Storage version: so that DuckDB 1.5 reads what 2.x wrote.
_WRITING: _Config = {"storage_compatibility_version": "v1.5.0"}
# A library may come from someone else: a view in it must not reach other files.
_READING: _Config = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "lock_configuration": "true",
}


class StorageError(Exception):
    """What went wrong with a store, as one sentence for its user."""


class NewerVersion(StorageError):
    """The library or bundle was written by a newer Fusionscope."""

    def __init__(self, what: str, version: int) -> None:
        super().__init__(
            f"{what} has schema version {version}, but this Fusionscope knows versions up to {schema.VERSION}: "
            "update Fusionscope to open it."
        )


class NotWritable(StorageError):
    """The store cannot be written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} cannot be written: {reason}.")


class Locked(StorageError):
    """Another process holds the library for longer than one waits."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"The library {path} is busy: an import is in progress or another program holds it open.")


class NotALibrary(StorageError):
    """The file is no Fusionscope library."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is not a Fusionscope library.")


@contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write below `path` into NotWritable."""
    try:
        yield
    except OSError as error:
        raise NotWritable(path, error.strerror or error) from error


@contextmanager
def open_for_writing(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the library at `path` alone, made or upgraded to this version; raises a StorageError."""
    with writable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _held(path, fcntl.LOCK_EX, timeout_s):
        if not path.exists():
            _make(path)
        with closing(_connect(path, read_only=False, timeout_s=timeout_s)) as con:
            try:
                if _checked_version(con, path) < schema.VERSION:
                    schema.upgrade(con)
                yield con
            except duckdb.Error as error:
                raise _explained(path, error) from error


@contextmanager
def _held(path: Path, how: int, timeout_s: float) -> Iterator[None]:
    """Hold the library at `path` alone (LOCK_EX) or beside others who read it (LOCK_SH); raises Locked.

    DuckDB's own lock comes too late: 2.0.1 reads the file's header and only then locks the file, and so overwrites
    what another process writes between the two. Who waits for the library has the turn: nobody else takes it first.
    """
    deadline = time.monotonic() + timeout_s
    with _lock_file(path.with_name(".in-use")) as library:
        with _lock_file(path.with_name(".turn")) as turn:
            for lock, kind in ((turn, fcntl.LOCK_EX), (library, how)):
                while not _taken(lock, kind):
                    if time.monotonic() > deadline:
                        raise Locked(path)
                    time.sleep(_RETRY_S)
        yield


@contextmanager
def _lock_file(path: Path) -> Iterator[int | None]:
    """A file that is there to be locked; None where it can be neither opened nor made."""
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDONLY, 0o644)
    except OSError:  # in a folder that is only read
        yield None
        return
    try:
        yield lock
    finally:
        os.close(lock)


def _taken(lock: int | None, how: int) -> bool:
    try:
        if lock is not None:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(path: Path) -> None:
    """An empty library, made aside: a disk that is full must not leave half of one behind."""
    with tempfile.TemporaryDirectory(prefix=".library-", dir=path.parent) as aside:
        made = Path(aside) / path.name
        with open_aside(made):
            pass
        with writable(path), suppress(FileExistsError):  # another process was first
            os.link(made, path)


@contextmanager
def open_aside(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database at `path` of which nobody else knows, with the tables of a library; raises a StorageError."""
    try:
        with closing(duckdb.connect(str(path), config=_WRITING)) as con:
            schema.upgrade(con)
            yield con
    except duckdb.Error as error:
        raise _explained(path, error) from error


def attach(con: duckdb.DuckDBPyConnection, path: Path, name: str) -> None:
    """Let `con` name the tables of a database that was made by `open_aside` and is closed."""
    con.execute(f"ATTACH '{str(path).replace(chr(39), chr(39) * 2)}' AS {name}")


@contextmanager
def open_for_reading(path: Path, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open the library at `path` beside other readers; one that is missing or older is made or upgraded first.

    A reader blocks writers for as long as it stays open: ask and close. Raises a StorageError.
    """
    if path.exists():
        with _reading(path, timeout_s) as (con, version):
            if version == schema.VERSION:
                yield con
                return
    with open_for_writing(path, timeout_s):
        pass
    with _reading(path, timeout_s) as (con, _):
        yield con


@contextmanager
def _reading(path: Path, timeout_s: float) -> Iterator[tuple[duckdb.DuckDBPyConnection, int]]:
    with _held(path, fcntl.LOCK_SH, timeout_s), closing(_connect(path, read_only=True, timeout_s=timeout_s)) as con:
        yield con, _checked_version(con, path)


@contextmanager
def in_memory() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty database of its own, on one thread: it works beside a model that is being measured."""
    con = duckdb.connect(config={"threads": "1", "autoinstall_known_extensions": "false"})
    try:
        yield con
    finally:
        con.close()


def require_possible(path: Path) -> None:
    """Raise StorageError for a path that DuckDB cannot open: it cuts the name of its log at a question mark."""
    if "?" in str(path):
        raise StorageError(f"{path} cannot be a store: DuckDB opens no path that has a question mark in it.")


def _connect(path: Path, *, read_only: bool, timeout_s: float) -> duckdb.DuckDBPyConnection:
    require_possible(path)
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return duckdb.connect(str(path), read_only=read_only, config=_READING if read_only else _WRITING)
        except duckdb.Error as error:
            if not _is_lock(error):
                raise _explained(path, error) from error
            if time.monotonic() > deadline:
                raise Locked(path) from error
        time.sleep(_RETRY_S)


def _is_lock(error: duckdb.Error) -> bool:
    """Whether another program, such as DuckDB's shell, holds the file."""
    return "Could not set lock" in str(error)


def _explained(path: Path, error: duckdb.Error) -> StorageError:
    if "not a valid DuckDB database" in str(error):
        return NotALibrary(path)
    return NotWritable(path, str(error).removeprefix("IO Error: ").splitlines()[0].rstrip("."))


def _checked_version(con: duckdb.DuckDBPyConnection, path: Path) -> int:
    version = schema.version_of(con)
    if version is None:
        raise NotALibrary(path)
    if version > schema.VERSION:
        raise NewerVersion(f"The library {path}", version)
    return version
