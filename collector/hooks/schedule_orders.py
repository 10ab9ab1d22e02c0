"""What the passes that reorder the schedule after fusion changed: each takes the nodes and returns them in an order.

Scheduler._init calls them one after the other: for peak memory, to overlap communication with computing, and to get by
with fewer partitions under CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, located, patched, unmet
from fusionscope.storage.records import Reordering

NAME = "schedule_orders"
RECORDS = (Reordering,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.memory:reorder_for_peak_memory": ("nodes",),
    "torch._inductor.comms:reorder_compute_and_comm_for_overlap": ("snodes",),
    "torch._inductor.scheduler:Scheduler.maybe_reorder_for_minimizing_partition": ("self", "nodes"),
    "torch._inductor.scheduler:Scheduler.reorder_for_partition_with_simple_dependency": ("self", "nodes"),
}
_SINCE_2_14: dict[str, tuple[str, ...]] = {"torch._inductor.comms:simple_overlap": ("snodes",)}


def problem() -> str | None:
    """All of them are there from torch 2.11 on; one more came with 2.14."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the names of the nodes before and after each pass."""

    def wrap(name: str, nodes_at: int) -> Callable[[Any], Callable[..., Any]]:
        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            def reorder(*args: Any, **kwargs: Any) -> Any:
                before: tuple[str, ...] = ()
                with emit.guarded():
                    before = _names(args[nodes_at])
                order = original(*args, **kwargs)
                with emit.guarded():
                    emit(_reordering(name, before, _names(order)))
                return order

            return reorder

        return around

    with ExitStack() as stack:
        for target, parameters in (TARGETS | (_SINCE_2_14 if unmet(_SINCE_2_14) is None else {})).items():
            owner, name = located(target)
            stack.enter_context(patched(owner, name, wrap(name, len(parameters) - 1)))
        yield


def _names(nodes: Iterable[Any]) -> tuple[str, ...]:
    return tuple(node.get_name() for node in nodes)


def _reordering(name: str, before: tuple[str, ...], after: tuple[str, ...]) -> Reordering:
    graph_id = whereabouts.graph_id() or ""
    if before == after:
        before = after = ()
    return Reordering(graph_id=graph_id, pass_name=name, before=before, after=after)
