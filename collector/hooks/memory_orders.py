"""The schedule orders that Inductor weighed for peak memory: it reports them through memory.signpost_event.

The peaks are torch's own words. torch 2.11 counts a graph's outputs as freed before the first step
(torch/_inductor/memory.py, estimate_peak_memory), so there each peak is lower by them; the choice is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.storage.records import MemoryOrder

NAME = "memory_orders"
RECORDS = (MemoryOrder,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.memory:reorder_for_peak_memory": (),
    "torch._inductor.memory:signpost_event": ("category", "name", "parameters"),
}


def problem() -> str | None:
    """reorder_for_peak_memory calls the function by its name in that module."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the peaks on their way to the signpost."""
    from torch._inductor import memory

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def signpost_event(category: str, name: str, parameters: dict[str, Any]) -> Any:
            with emit.guarded():
                if (category, name) == ("inductor", "memory"):
                    for order in _orders(parameters.get("orm", {})):
                        emit(order)
            return original(category, name, parameters)

        return signpost_event

    with patched(memory, "signpost_event", wrap):
        yield


def _orders(peaks: dict[str, Any]) -> list[MemoryOrder]:
    """The first method with the lowest peak is taken; `baseline` is the order as given (reorder_for_peak_memory)."""
    numbers = {method: int(peak) for method, peak in peaks.items() if isinstance(peak, (int, float))}
    best = min(numbers, key=lambda method: numbers[method], default=None)
    graph_id = whereabouts.graph_id() or ""
    return [
        MemoryOrder(
            graph_id=graph_id,
            method="as_given" if method == "baseline" else method.removeprefix("topological_sort_"),
            peak_bytes=peak,
            chosen=method == best,
        )
        for method, peak in numbers.items()
    ]
