"""A connection that the questions of a page share: DuckDB takes 20 ms to open one, and a page asks up to thirty."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Timer
from typing import Concatenate, ParamSpec, TypeVar

from duckdb import DuckDBPyConnection

from fusionscope.storage.database import open_for_reading

OPEN_S = 0.5  # for as long a writer may have to wait, and until the questions asked meanwhile are answered

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


@dataclass(eq=False)
class _Opened:
    """A connection, the file that it reads, how it is closed, and the questions that are being answered on it."""

    con: DuckDBPyConnection
    file: tuple[int, ...] | None
    closing: ExitStack
    asked: int = 1
    over: bool = False  # takes no more questions


class Reader:
    """Answers from the library at `path` to any number of threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opening = Lock()  # apart: who opens may wait for a writer, who waits until others have counted down
        self._counting = Lock()
        self._opened: _Opened | None = None

    def ask(
        self,
        query: Callable[Concatenate[DuckDBPyConnection, Given], Answer],
        *args: Given.args,
        **kwargs: Given.kwargs,
    ) -> Answer:
        """The answer of `query(con, *args)`; raises what `open_for_reading` does."""
        opened = self._join()
        try:
            with closing(opened.con.cursor()) as con:
                return query(con, *args, **kwargs)
        finally:
            with self._counting:
                opened.asked -= 1
                _close_unused(opened)

    def let_go(self) -> None:
        """Take no more questions on the connection that is open; the last that is answered closes it."""
        if self._opened is not None:
            self._retire(self._opened)

    def _join(self) -> _Opened:
        """The connection that is open, else a new one, with one more question on it."""
        with self._opening:
            with self._counting:
                opened = self._opened
                if opened is not None and not opened.over and opened.file == _file(self._path):
                    opened.asked += 1
                    return opened
            self.let_go()  # of a file that is another by now
            self._opened = self._open()
            return self._opened

    def _open(self) -> _Opened:
        with ExitStack() as stack:
            con = stack.enter_context(open_for_reading(self._path))
            opened = _Opened(con, _file(self._path), stack)
            end = Timer(OPEN_S, self._retire, [opened])
            end.daemon = True
            end.start()
            opened.closing = stack.pop_all()
        return opened

    def _retire(self, opened: _Opened) -> None:
        with self._counting:
            opened.over = True
            _close_unused(opened)


def _close_unused(opened: _Opened) -> None:
    if opened.over and not opened.asked:
        opened.closing.close()


def _file(path: Path) -> tuple[int, ...] | None:
    """What tells a file from one that is put in its place, or written to past its locks."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size
