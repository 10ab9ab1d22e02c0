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

KERNEL = "fusionscope kernel "  # event name of a generated C++ kernel: this, the wrapper's file, a space, the kernel
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


def _marked(kernel: Callable[..., Any], event: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with record_function(event):
            return kernel(*arguments)

    return call
