"""Lines of the user's code made visible to a profiler, so that allocations nest under the line that asked for them.

The profiler's own Python stacks know where a function was called, not where an operator written as a sign (a @ b) is.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from fusionscope.collector.measure.profile import record_function

LINE = "fusionscope line "  # event name of a line: this, the file, a space, its number
_NOT_THE_USERS = (
    f"{Path(torch.__file__).parent}/",
    f"{Path(__file__).parents[1]}/",
    f"{sysconfig.get_path('stdlib')}/",
)


@contextmanager
def lines_marked(wrappers: frozenset[str]) -> Iterator[None]:
    """Make each line of the user's that this thread runs an event; emitted wrappers are no code of the user's."""
    given = sys.gettrace()
    sys.settrace(_Lines(wrappers).enter)
    try:
        yield
    finally:
        sys.settrace(given)


def place(event_name: str) -> tuple[str, int] | None:
    """File and line of such an event; None of any other."""
    if not event_name.startswith(LINE):
        return None
    file, _, number = event_name.removeprefix(LINE).rpartition(" ")
    return file, int(number)


@cache
def is_the_users(file: str) -> bool:
    """A file that is there and neither torch's, Python's nor our own."""
    return not file.startswith((*_NOT_THE_USERS, "<")) and Path(file).exists()


class _Lines:
    """A trace function that opens an event at each line and closes it at the next one of the same frame."""

    def __init__(self, wrappers: frozenset[str]) -> None:
        self._wrappers = wrappers
        self._open: list[Any] = []  # the current line's event, one for each active frame

    def enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if file in self._wrappers or not is_the_users(file):
            return None
        self._open.append(None)
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event in ("line", "return") and self._open[-1] is not None:
            self._open[-1].__exit__(None, None, None)
            self._open[-1] = None
        if event == "line":
            self._open[-1] = record_function(f"{LINE}{frame.f_code.co_filename} {frame.f_lineno}")
            self._open[-1].__enter__()
        elif event == "return":
            self._open.pop()
        return self._line
