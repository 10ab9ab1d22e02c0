"""Which scheduler nodes each generated or library call computes.

set_kernel_post_grad_provenance_tracing is called for every Triton, C++ and extern call, even with provenance off, but
for those of mix-order kernels. The code generators import it by name, so it is replaced in each of their modules; ir.py
imports it from debug when it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import KernelWritten

NAME = "kernel_calls"
RECORDS = (KernelWritten,)

_TARGET = "set_kernel_post_grad_provenance_tracing"
TARGETS = {f"torch._inductor.debug:{_TARGET}": ("node_schedule", "kernel_name", "is_extern")}
_MODULES = ("debug", "scheduler", "codegen.cpp", "codegen.triton")


def problem() -> str | None:
    """The function keeps its parameters from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the nodes of each call."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def traced(node_schedule: Any, kernel_name: str, is_extern: bool = False) -> Any:
            with emit.guarded():
                nodes = _extern_nodes(node_schedule) if is_extern else reading.scheduled(node_schedule)
                emit(KernelWritten(whereabouts.graph_id() or "", kernel_name, nodes, is_extern))
            return original(node_schedule, kernel_name, is_extern)

        return traced

    with ExitStack() as stack:
        for name in _MODULES:
            module = importlib.import_module(f"torch._inductor.{name}")
            if hasattr(module, _TARGET):
                stack.enter_context(patched(module, _TARGET, wrap))
        yield


def _extern_nodes(kernel: Any) -> tuple[str, ...]:
    """An extern call is its own operation; its name is the scheduler node's."""
    return (str(kernel.get_operation_name()),)
