"""Act right after a module was first imported, so that recording need not import it before the user does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


@contextmanager
def after_import(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Call `action()` once, when the module `name` has been imported inside the context; at once if it is already."""
    if name in sys.modules:
        action()
        yield
        return
    finder = _Finder(name, action)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.step_aside()


class _Finder(MetaPathFinder):
    """Finds one module, the way the others do, and puts a loader around its loader."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self.name, self.action = name, action

    def step_aside(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        self.step_aside()
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.action)
        return spec


class _Loader(Loader):
    """Loads by the original loader, which the module keeps as its own, then acts."""

    def __init__(self, original: Loader, action: Callable[[], None]) -> None:
        self.original, self.action = original, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.original.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.original
        if module.__spec__ is not None:
            module.__spec__.loader = self.original
        self.original.exec_module(module)
        self.action()
