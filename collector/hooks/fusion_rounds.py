"""The scheduler's fusion rounds and the candidates of each, best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import CandidatesRanked, RoundBegan

NAME = "fusion_rounds"
RECORDS = (RoundBegan, CandidatesRanked)
TARGETS = {
    "torch._inductor.scheduler:Scheduler.fuse_nodes_once": ("nodes",),
    "torch._inductor.scheduler:Scheduler.get_possible_fusions": ("nodes",),
}


def problem() -> str | None:
    """Both methods have kept their signatures since torch 2.11."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note where a round begins and what it chose from."""
    from torch._inductor.scheduler import Scheduler

    def wrap_round(original: Callable[..., Any]) -> Callable[..., Any]:
        def fuse_nodes_once(scheduler: Any, nodes: Any, is_reorder_round: bool = False) -> Any:
            with emit.guarded():
                emit(RoundBegan(whereabouts.graph_id() or "", len(nodes), is_reorder_round))
            return original(scheduler, nodes, is_reorder_round)

        return fuse_nodes_once

    def wrap_candidates(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_possible_fusions(*args: Any, **kwargs: Any) -> Any:
            ranked = original(*args, **kwargs)
            with emit.guarded():
                pairs = tuple((a.get_name(), b.get_name()) for a, b in ranked)
                emit(CandidatesRanked(whereabouts.graph_id() or "", pairs))
            return ranked

        return get_possible_fusions

    with (
        patched(Scheduler, "fuse_nodes_once", wrap_round),
        patched(Scheduler, "get_possible_fusions", wrap_candidates),
    ):
        yield
