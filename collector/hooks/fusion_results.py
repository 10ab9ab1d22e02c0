"""What came of the candidates: the pairs that were fused, and those dropped because of a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import CycleFound, FusionBegan, PairFused

NAME = "fusion_results"
RECORDS = (FusionBegan, PairFused, CycleFound)
_SPECIAL = ("mix_order", "nested")
TARGETS = {
    "torch._inductor.scheduler:Scheduler.fuse_two_nodes": ("node1", "node2"),
    "torch._inductor.scheduler:Scheduler.will_fusion_create_cycle": ("node1", "node2"),
}


def problem() -> str | None:
    """Both methods have kept their signatures since torch 2.11."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note fusions in the order taken."""
    from torch._inductor.scheduler import Scheduler

    def wrap_fusion(original: Callable[..., Any]) -> Callable[..., Any]:
        def fuse_two_nodes(scheduler: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> Any:
            with emit.guarded():
                emit(FusionBegan(whereabouts.graph_id() or ""))
            fused = original(scheduler, node1, node2, *args, **kwargs)
            with emit.guarded():
                a, b, graph_id = node1.get_name(), node2.get_name(), whereabouts.graph_id() or ""
                emit(PairFused(graph_id, a, b, fused.get_name(), _became(fused, node1, node2)))
            return fused

        return fuse_two_nodes

    def wrap_cycle(original: Callable[..., bool]) -> Callable[..., bool]:
        def will_fusion_create_cycle(scheduler: Any, node1: Any, node2: Any) -> bool:
            cycle = original(scheduler, node1, node2)
            if cycle:
                with emit.guarded():
                    emit(CycleFound(whereabouts.graph_id() or "", node1.get_name(), node2.get_name()))
            return cycle

        return will_fusion_create_cycle

    with (
        patched(Scheduler, "fuse_two_nodes", wrap_fusion),
        patched(Scheduler, "will_fusion_create_cycle", wrap_cycle),
    ):
        yield


def _became(fused: Any, *parts: Any) -> str | None:
    kind = reading.group_kind(fused)
    new = kind in _SPECIAL and kind not in map(reading.group_kind, parts)
    return kind if new else None
