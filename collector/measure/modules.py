"""The forward of each module as an event of the profiler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fusionscope.collector.measure.profile import record_function

MODULE = "fusionscope module "  # event name: this and the module's dotted path, empty for the model itself
_TORCH = f"{Path(torch.__file__).parent}/"


def called(model: Callable[..., Any]) -> Callable[..., Any]:
    """The model with its own call as an event; of a module `modules_marked` makes it one."""
    if isinstance(model, nn.Module):
        return model

    def call(*arguments: Any) -> Any:
        with record_function(MODULE):
            return model(*arguments)

    return call


@contextmanager
def modules_marked(model: Any) -> Iterator[None]:
    """Mark each forward of the model's modules; of a function those of each module that it calls, by Dynamo's path."""
    marks = _Marks({module: path for path, module in model.named_modules()} if isinstance(model, nn.Module) else None)
    hooks = register_module_forward_pre_hook(marks.begin), register_module_forward_hook(marks.end, always_call=True)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Marks:
    """Opens and closes the event of each module; without `paths` it learns those of whatever module runs outermost."""

    def __init__(self, paths: dict[nn.Module, str] | None) -> None:
        self._learns, self._paths = paths is None, paths or {}
        self._running: list[Any] = []

    def begin(self, module: nn.Module, _: Any) -> None:
        if self._learns and not self._running and module not in self._paths:
            root = _name_of(module, sys._getframe(1))
            self._paths |= {within: f"{root}.{path}".strip(".") for path, within in module.named_modules()}
        if module in self._paths:
            self._running.append(record_function(MODULE + self._paths[module]))
            self._running[-1].__enter__()

    def end(self, module: nn.Module, *_: Any) -> None:
        if module in self._paths:
            self._running.pop().__exit__(None, None, None)


def _name_of(module: nn.Module, frame: FrameType | None) -> str:
    """What the code that calls a module names it, as Dynamo's paths do without their roots.

    Dynamo says L['net'] of a variable, argument or closure, L['self'].net of an attribute of one, and G['net'] of a
    global, whose name is part of the path (collector/reading.py, module_path).
    """
    while frame is not None and frame.f_code.co_filename.startswith(_TORCH):
        frame = frame.f_back
    local = frame.f_locals if frame is not None else {}
    if frame is None or any(value is module for value in local.values()):
        return ""
    holders = [*(vars(value) for value in local.values() if hasattr(value, "__dict__")), frame.f_globals]
    return next((name for holder in holders for name, value in holder.items() if value is module), "")
