"""The wrapper modules that Inductor generated and loaded: their kernels and lines made visible to a profiler."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from torch._inductor.codecache import PyCodeCache

from fusionscope.collector.measure.profile import record_function

KERNEL = "fusionscope kernel "  # event name of a generated C++ kernel: this, the wrapper's file, a space, the kernel
LINE = "fusionscope line "  # event name of a wrapper line: this and its text
_DEFINITION = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)


def wrappers() -> list[ModuleType]:
    """Loaded modules with a `call`; PyCodeCache also holds Triton kernels, which have none."""
    return [module for module in PyCodeCache.modules if hasattr(module, "call") and module.__file__]


def kernels_of(wrapper: ModuleType) -> list[str]:
    """Names of the kernels that the wrapper defines, as globals of its module."""
    source = Path(str(wrapper.__file__)).read_text(encoding="utf-8")
    return [name for name in _DEFINITION.findall(source) if hasattr(wrapper, name)]


@contextmanager
def kernels_marked() -> Iterator[None]:
    """Make each call of a generated C++ kernel an event: the profiler sees operators, and these are none.

    The wrapper looks its kernels up as globals when it runs, so replacing the globals is enough.
    """
    replaced = []
    for wrapper in wrappers():
        for name in kernels_of(wrapper):
            kernel = getattr(wrapper, name)
            if not hasattr(kernel, "run"):  # Triton's launchers are seen on the device
                replaced.append((wrapper, name, kernel))
                setattr(wrapper, name, _marked(kernel, f"{KERNEL}{wrapper.__file__} {name}"))
    try:
        yield
    finally:
        for wrapper, name, kernel in replaced:
            setattr(wrapper, name, kernel)


@contextmanager
def lines_marked() -> Iterator[None]:
    """Make each wrapper line that this thread runs an event, so that allocations nest under their line."""
    files = {wrapper.__file__ for wrapper in wrappers()}
    trace = _LineTrace(files)
    given = sys.gettrace()
    sys.settrace(trace.enter)
    try:
        yield
    finally:
        sys.settrace(given)


class _LineTrace:
    """A trace function on the wrappers' `call` alone; every other frame is left untraced."""

    def __init__(self, files: set[str | None]) -> None:
        self.files = files
        self.open: list[Any] = []  # the current line's event, one for each active call

    def enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self.files or not (code.co_name == "call" or code.co_name.startswith("partition_")):
            return None
        self.open.append(None)
        return self.line

    def line(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        if event in ("line", "return") and self.open[-1] is not None:
            self.open[-1].__exit__(None, None, None)
            self.open[-1] = None
        if event == "line":
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            self.open[-1] = record_function(LINE + text)
            self.open[-1].__enter__()
        elif event == "return":
            self.open.pop()
        return self.line


def _marked(kernel: Callable[..., Any], event: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with record_function(event):
            return kernel(*arguments)

    return call
