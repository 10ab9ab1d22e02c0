"""Each pair that the scheduler tests: Scheduler.can_fuse, asked once to find candidates and again before fusing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import PairAnswered, PairEntered

NAME = "fusion_pairs"
RECORDS = (PairEntered, PairAnswered)
TARGETS = {"torch._inductor.scheduler:Scheduler.can_fuse": ("node1", "node2")}


def problem() -> str | None:
    """torch 2.15 adds check_cycle, so only the pair itself is relied on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note each question and its answer, nested ones included."""
    from torch._inductor.scheduler import Scheduler

    def wrap(original: Callable[..., bool]) -> Callable[..., bool]:
        def can_fuse(scheduler: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> bool:
            with emit.guarded():
                graph_id = whereabouts.graph_id() or ""
                emit(PairEntered(graph_id, node1.get_name(), node2.get_name()))
            answer = original(scheduler, node1, node2, *args, **kwargs)
            with emit.guarded():
                a, b = node1.get_name(), node2.get_name()
                emit(PairAnswered(whereabouts.graph_id() or "", a, b, bool(answer), direction(node1, node2)))
            return answer

        return can_fuse

    with patched(Scheduler, "can_fuse", wrap):
        yield


def direction(node1: Any, node2: Any) -> str:
    """epilogue, prologue, vertical (producer and consumer) or horizontal (neighbours)."""
    dependent = bool(node1.get_operation_names() & node2.ancestors)
    if dependent and node1.is_template():
        return "epilogue"
    if dependent and node2.is_template():
        return "prologue"
    return "vertical" if dependent else "horizontal"
