"""The parts of a legal pair's score. score_fusion_key sees whatever choices handler is active (V.choices).

torch scores only the candidates of the backend's highest priority, and not the pairs that replace a candidate whose end
was fused meanwhile. Those are scored here, by torch's own function, so that every legal pair can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import PairScored

NAME = "fusion_scores"
RECORDS = (PairScored,)
TARGETS = {
    "torch._inductor.scheduler:Scheduler.score_fusion_key": ("nodes",),
    "torch._inductor.scheduler:Scheduler.get_possible_fusions_with_highest_priority": ("possible_fusions",),
    "torch._inductor.scheduler:Scheduler.fuse_two_nodes": ("node1", "node2"),
}


def problem() -> str | None:
    """The body of score_fusion_key is the same from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read each score as the candidates are sorted, and ask for the others."""
    from torch._inductor.scheduler import Scheduler

    scored: set[tuple[str, str, str]] = set()

    def ask(scheduler: Any, pairs: Iterable[Any]) -> None:
        for a, b in pairs:
            if (whereabouts.graph_id() or "", a.get_name(), b.get_name()) not in scored:
                scheduler.score_fusion_key((a, b))

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def score_fusion_key(scheduler: Any, nodes: Any) -> Any:
            score = original(scheduler, nodes)
            with emit.guarded():
                parts = _parts(whereabouts.graph_id() or "", nodes, score)
                scored.add((parts.graph_id, parts.a, parts.b))
                emit(parts)
            return score

        return score_fusion_key

    def wrap_priority(original: Callable[..., Any]) -> Callable[..., Any]:
        def get_possible_fusions_with_highest_priority(scheduler: Any, possible_fusions: Any) -> Any:
            kept = original(scheduler, possible_fusions)
            with emit.guarded():
                chosen = {(id(a), id(b)) for a, b in kept}
                ask(scheduler, [(a, b) for a, b in possible_fusions if (id(a), id(b)) not in chosen])
            return kept

        return get_possible_fusions_with_highest_priority

    def wrap_fusion(original: Callable[..., Any]) -> Callable[..., Any]:
        def fuse_two_nodes(scheduler: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> Any:
            with emit.guarded():
                ask(scheduler, [(node1, node2)])
            return original(scheduler, node1, node2, *args, **kwargs)

        return fuse_two_nodes

    with (
        patched(Scheduler, "score_fusion_key", wrap),
        patched(Scheduler, "get_possible_fusions_with_highest_priority", wrap_priority),
        patched(Scheduler, "fuse_two_nodes", wrap_fusion),
    ):
        yield


def _parts(graph_id: str, nodes: Any, score: Any) -> PairScored:
    def part(name: str) -> int | None:
        value = getattr(score, name, None)  # buffer_overlap_score came with torch 2.13; a custom score has none
        return None if value is None else int(value)

    return PairScored(
        graph_id,
        nodes[0].get_name(),
        nodes[1].get_name(),
        template=part("template_score"),
        type=part("node_type_score"),
        memory=part("memory_score"),
        overlap=part("buffer_overlap_score"),
        proximity=part("proximity_score"),
    )
