"""The loops of scheduler nodes that Inductor reorders, so that two nodes walk a buffer in the same order.

can_fuse tries an order and, from torch 2.13 on, takes it back when the pair is refused all the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LoopsReordered, LoopsRestored

NAME = "loop_orders"
RECORDS = (LoopsReordered, LoopsRestored)
TARGETS = {"torch._inductor.scheduler:SchedulerNode.apply_new_loop_order": ("new_order",)}
_BY_CALLER = {
    "reorder_loops_by_dep_pair": "loop_ordering_after_fusion",  # the option that turns it on
    "swap_pw_red_dimension": "mix_order_reduction",  # code generation of a mix-order group
}


def problem() -> str | None:
    """Every reordering of loops goes through this method."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the loops before and after, by place and length, and when they are put back."""
    from torch._inductor.scheduler import SchedulerNode

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def apply_new_loop_order(node: Any, new_order: Any) -> None:
            with emit.guarded():
                caller = sys._getframe(1).f_code.co_name
                before = tuple(f"d{place}={size}" for place, size in enumerate(node._body.sizes[0]))
                after = tuple(before[place] for place in new_order)
                pass_name = _BY_CALLER.get(caller, caller)
                emit(LoopsReordered(whereabouts.graph_id() or "", node.get_name(), pass_name, before, after))
            original(node, new_order)

        return apply_new_loop_order

    def wrap_restore(original: Callable[..., None]) -> Callable[..., None]:
        def restore_loop_state(node: Any, state: Any) -> None:
            with emit.guarded():
                emit(LoopsRestored(whereabouts.graph_id() or "", node.get_name()))
            original(node, state)

        return restore_loop_state

    with ExitStack() as stack:
        stack.enter_context(patched(SchedulerNode, "apply_new_loop_order", wrap))
        if hasattr(SchedulerNode, "restore_loop_state"):
            stack.enter_context(patched(SchedulerNode, "restore_loop_state", wrap_restore))
        yield
