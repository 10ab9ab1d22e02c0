"""Keeps a scheduler node out of its fusion group, so that what the group is without it can be compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import patched


@contextmanager
def cut(graph_id: str, node: str, others: Collection[str]) -> Iterator[None]:
    """Refuse every pair of the graph that would bring the node into one group with one of the others.

    Scheduler.can_fuse is asked before any pair is fused (torch/_inductor/scheduler.py); the node may still be fused
    with nodes that are not among the others. Names of scheduler nodes are given before fusion, so they stay.
    """
    from torch._inductor.scheduler import Scheduler

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def can_fuse(scheduler: Any, node1: Any, node2: Any, *arguments: Any, **keywords: Any) -> Any:
            sides = [set(side.get_operation_names()) for side in (node1, node2)]
            if whereabouts.graph_id() == graph_id and any(
                node in one and not other.isdisjoint(others) for one, other in (sides, reversed(sides))
            ):
                return False
            return original(scheduler, node1, node2, *arguments, **keywords)

        return can_fuse

    with patched(Scheduler, "can_fuse", wrap):
        yield
