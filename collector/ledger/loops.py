"""Which loops stay reordered: can_fuse may try an order and put the loops back when it refuses the pair."""

from __future__ import annotations

from collections.abc import Iterable

from fusionscope.collector.observations import LoopsReordered, LoopsRestored, PairAnswered, PairEntered
from fusionscope.storage.records import Reordering


def loop_reorderings(graph_id: str, observations: Iterable[object]) -> list[Reordering]:
    """One record per node and reordering that was kept."""
    kept: list[LoopsReordered] = []
    depth, asked_at = 0, 0  # open questions, and how many reorderings there were before the outermost
    for seen in observations:
        match seen:
            case PairEntered():
                asked_at = asked_at if depth else len(kept)
                depth += 1
            case PairAnswered():
                depth -= 1
            case LoopsReordered():
                kept.append(seen)
            case LoopsRestored() if depth:
                kept[asked_at:] = [loops for loops in kept[asked_at:] if loops.node != seen.node]
    return [
        Reordering(graph_id=graph_id, pass_name=seen.pass_name, subject=seen.node, before=seen.before, after=seen.after)
        for seen in kept
        if seen.before != seen.after
    ]
