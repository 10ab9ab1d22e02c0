"""Which scheduler nodes a mix-order kernel computes: its call alone is generated without a trace of its provenance.

SIMDScheduling._codegen_mix_order_reduction defines the kernel, then asks for a comment that names none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import KernelWritten

NAME = "mix_order_kernels"
RECORDS = (KernelWritten,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.codegen.triton:TritonScheduling.define_kernel": ("src_code", "node_schedule"),
    "torch._inductor.codegen.triton:TritonScheduling.codegen_comment": ("node_schedule", "kernel_name"),
}


class _Thread(threading.local):
    defined: str | None = None  # the kernel that was defined last


def problem() -> str | None:
    """Both methods have kept their parameters since torch 2.11."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the nodes of each comment without a kernel's name: they are those of the kernel defined last."""
    from torch._inductor.codegen.triton import TritonScheduling

    here = _Thread()

    def wrap_define(original: Callable[..., Any]) -> Callable[..., Any]:
        def define_kernel(*args: Any, **kwargs: Any) -> Any:
            here.defined = original(*args, **kwargs)
            return here.defined

        return define_kernel

    def wrap_comment(original: Callable[..., Any]) -> Callable[..., Any]:
        def codegen_comment(scheduling: Any, node_schedule: Any, kernel_name: str | None = None) -> Any:
            if kernel_name is None and here.defined is not None:
                with emit.guarded():
                    nodes = reading.scheduled(node_schedule)
                    emit(KernelWritten(whereabouts.graph_id() or "", here.defined, nodes, extern=False))
            return original(scheduling, node_schedule, kernel_name)

        return codegen_comment

    with (
        patched(TritonScheduling, "define_kernel", wrap_define),
        patched(TritonScheduling, "codegen_comment", wrap_comment),
    ):
        yield
