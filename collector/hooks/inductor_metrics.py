"""What torch._inductor.metrics counted while each graph's code was generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.storage.records import Counter

NAME = "inductor_metrics"
RECORDS = (Counter,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.graph:GraphLowering.codegen": (),
    "torch._inductor.metrics:generated_kernel_count": (),
}

_COUNTERS = {
    "generated_kernel_count": "generated_kernel_count",
    "generated_cpp_vec_kernel_count": "cpp_vec_kernels",
    "parallel_reduction_count": "parallel_reductions",
    "cpp_outer_loop_fused_inner_counts": "outer_loop_fused",  # a list: each item is one fusion of outer loops
    "codegen_mix_order_reduction": "mix_order_reductions",
    "rejected_mix_order_reduction_fusion": "rejected_mix_order_reductions",
    "codegen_nested_reduction": "nested_reductions",
    "num_loop_reordering": "loop_reorderings",
    "num_comprehensive_padding": "comprehensive_paddings",
    "ir_nodes_pre_fusion": "ir_nodes_pre_fusion",
}  # torch's name → the library's


def problem() -> str | None:
    """Not every counter is there on every torch; those that are not do not grow."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Give each graph what the counters grew by since the graph before; what grows after the last one has no graph."""
    from torch._inductor.graph import GraphLowering

    last = _counts()

    def tell(graph_id: str | None) -> None:
        nonlocal last
        before, last = last, _counts()
        if whereabouts.phase() != "drive":
            return
        for name, count in last.items():
            grown = count - before[name] if count >= before[name] else count  # less: metrics.reset() was called
            if grown:
                emit(Counter(graph_id=graph_id, name=name, value=grown))

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def codegen(lowering: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(lowering, *args, **kwargs)
            with emit.guarded():
                tell(whereabouts.name_of(lowering))
            return result

        return codegen

    @contextmanager
    def aside() -> Iterator[None]:
        nonlocal last
        with emit.guarded():
            tell(None)
        try:
            yield
        finally:
            last = _counts()

    try:
        with patched(GraphLowering, "codegen", wrap), whereabouts.around_measuring(aside):
            yield
    finally:
        with emit.guarded():
            tell(None)


def _counts() -> dict[str, int]:
    from torch._inductor import metrics

    found = {name: getattr(metrics, attribute, 0) for attribute, name in _COUNTERS.items()}
    return {name: count if isinstance(count, int) else len(count) for name, count in found.items()}
