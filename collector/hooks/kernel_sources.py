"""The source of each generated kernel, as the wrapper defines it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import KernelDefined

NAME = "kernel_sources"
RECORDS = (KernelDefined,)
TARGETS = {"torch._inductor.codegen.wrapper:PythonWrapperCodegen.define_kernel": ("kernel_name", "kernel_body", "gpu")}


def problem() -> str | None:
    """PythonWrapperCodegen.define_kernel is the same from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read each definition; a kernel is defined once however often it is called."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def define_kernel(
            wrapper: Any,
            kernel_name: str,
            kernel_body: str,
            metadata: Any = None,
            gpu: bool = True,
            *rest: Any,
            **more: Any,
        ) -> Any:
            with emit.guarded():
                emit(KernelDefined(whereabouts.graph_id() or "", kernel_name, kernel_body, gpu))
            return original(wrapper, kernel_name, kernel_body, metadata, gpu, *rest, **more)

        return define_kernel

    with patched(PythonWrapperCodegen, "define_kernel", wrap):
        yield
