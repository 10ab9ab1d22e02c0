"""The template that a contest put off to the scheduler ended with.

With config.benchmark_epilogue_fusion a contest stays open (ir.MultiTemplateBuffer) until the scheduler has timed the
fastest templates with what would be fused into them; the winner may be slower alone. A buffer that no template got
becomes a library call instead, and nothing is told here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import contests
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import TemplateTaken

NAME = "gemm_fused"
RECORDS = (TemplateTaken,)
TARGETS = {"torch._inductor.ir:MultiTemplateBuffer.finalize_as_triton_caller": ("caller",)}


def problem() -> str | None:
    """A template that won is set by finalize_as_triton_caller."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the candidate that each buffer is bound to."""
    from torch._inductor.ir import MultiTemplateBuffer

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def finalize_as_triton_caller(buffer: Any, caller: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(buffer, caller, *arguments, **keywords)
            with emit.guarded():
                if (seat := contests.seat(caller)) is not None:
                    emit(TemplateTaken(seat.graph_id, seat.contest, seat.position))
            return result

        return finalize_as_triton_caller

    with patched(MultiTemplateBuffer, "finalize_as_triton_caller", wrap):
        yield
