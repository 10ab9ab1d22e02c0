"""The wrapper modules that Inductor generated and loaded: their kernels made visible to a profiler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch._inductor.codecache import PyCodeCache

from fusionscope.collector.measure.profile import record_function

KERNEL = "fusionscope kernel "  # event name of a wrapper's kernel call: this, the wrapper's file, a space, the kernel
_DEFINITION = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)
_LIBRARY = re.compile(r"\b((?:torch\.ops|aten)\.[\w.]+)\(")  # an operator of torch as a wrapper calls it

# How a wrapper sums up what the blocks of a mix-order kernel left: torch/_inductor/codegen/simd.py, final_reduce
_FINISH = re.compile(r"^\s*\w+ = workspace_\d+\[.+\]\.view\(.+\)\.(\w+)\(dim=0\)", re.MULTILINE)


def wrappers() -> list[ModuleType]:
    """Loaded modules with a `call`; PyCodeCache also holds Triton kernels, which have none."""
    return [module for module in PyCodeCache.modules if hasattr(module, "call") and module.__file__]


def kernels_of(wrapper: ModuleType) -> list[str]:
    """Names of the kernels that the wrapper defines, as globals of its module."""
    return [name for name in _DEFINITION.findall(_source(wrapper)) if hasattr(wrapper, name)]


def operators_of(wrapper: ModuleType) -> dict[str, str]:
    """Operators of torch that the wrapper calls by themselves: the dispatcher's name → as the wrapper writes it."""
    return {dispatched(name): name for name in _LIBRARY.findall(_source(wrapper))}


def finishing_operators(wrapper: ModuleType) -> set[str]:
    """Operators that finish what the kernel before them began, by the dispatcher's name: a mix-order reduction."""
    return {f"aten::{name}" for name in _FINISH.findall(_source(wrapper))}


def dispatched(call: str) -> str:
    """`torch.ops.aten.cumsum.default` and `aten.cumsum` in the dispatcher's words: aten::cumsum."""
    namespace, operator, *_ = call.removeprefix("torch.ops.").split(".")
    return f"{namespace}::{operator}"


@contextmanager
def kernels_marked() -> Iterator[None]:
    """Make each kernel call of a wrapper an event: of a generated kernel, or of extern_kernels.

    The wrapper looks its kernels up as globals when it runs, so replacing the globals is enough.
    """
    replaced = [(wrapper, name, getattr(wrapper, name)) for wrapper in wrappers() for name in _callables(wrapper)]
    for wrapper, name, kernel in replaced:
        setattr(wrapper, name, _marked_global(name, kernel, f"{KERNEL}{wrapper.__file__} {name}"))
    try:
        yield
    finally:
        for wrapper, name, kernel in replaced:
            setattr(wrapper, name, kernel)


def _source(wrapper: ModuleType) -> str:
    return Path(str(wrapper.__file__)).read_text(encoding="utf-8")


def _callables(wrapper: ModuleType) -> list[str]:
    return [*kernels_of(wrapper), *(["extern_kernels"] if hasattr(wrapper, "extern_kernels") else [])]


def _marked_global(name: str, kernel: Any, event: str) -> Any:
    if name == "extern_kernels":
        return _Marked(kernel, lambda name: f"{event}.{name}")
    if hasattr(kernel, "run"):  # Triton's launcher
        return _Marked(kernel, lambda name: event, only="run")
    return _marked(kernel, event)


class _Marked:
    """An object whose functions are events when they are called."""

    def __init__(self, marked: Any, event: Callable[[str], str], only: str | None = None) -> None:
        self._marked, self._event, self._only = marked, event, only

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._marked, name)
        return _marked(found, self._event(name)) if callable(found) and self._only in (None, name) else found


def _marked(kernel: Callable[..., Any], event: str) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        with record_function(event):
            return kernel(*arguments, **keywords)

    return call
