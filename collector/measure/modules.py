"""The forward of each module as an event of the profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fusionscope.collector.measure.profile import record_function

MODULE = "fusionscope module "  # event name: this and the module's dotted path, empty for the model itself


@contextmanager
def modules_marked(model: Any) -> Iterator[None]:
    """Mark each forward of the model's modules; of a model that is a function nothing is marked."""
    paths = {module: path for path, module in model.named_modules()} if isinstance(model, nn.Module) else {}
    running: list[Any] = []

    def begin(module: nn.Module, _: Any) -> None:
        if module in paths:
            running.append(record_function(MODULE + paths[module]))
            running[-1].__enter__()

    def end(module: nn.Module, *_: Any) -> None:
        if module in paths:
            running.pop().__exit__(None, None, None)

    marks = register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True)
    try:
        yield
    finally:
        for mark in marks:
            mark.remove()
