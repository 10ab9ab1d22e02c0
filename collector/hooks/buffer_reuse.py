"""Chances to use memory again: in place, by a loop that reads a buffer for the last time, and from the wrapper's pool.

AllocateLine.should_reuse_buffer (torch/_inductor/codegen/wrapper.py) takes a freed buffer only where holding it until
then does not lift the estimated peak; BaseSchedulerNode.decide_inplace_update (torch/_inductor/scheduler.py) wants a
buffer that nothing else reads and whose elements are read where they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.storage.records import ReuseDecision

NAME = "buffer_reuse"
RECORDS = (ReuseDecision,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.codegen.wrapper:AllocateLine.should_reuse_buffer": ("free_line", "size"),
    "torch._inductor.scheduler:BaseSchedulerNode.decide_inplace_update": (),
}
HOLDING = "held until then it would lift the estimated peak"


def problem() -> str | None:
    """Both methods keep their parameters from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the answers; a kernel may be written several times, so an answer is told once."""
    from torch._inductor.codegen.wrapper import AllocateLine
    from torch._inductor.scheduler import BaseSchedulerNode

    told: set[tuple[str, str, str, str]] = set()

    def tell(decision: ReuseDecision) -> None:
        key = decision.graph_id, decision.buffer, decision.candidate, decision.kind
        if key not in told:
            told.add(key)
            emit(decision)

    def wrap_pool(original: Callable[..., bool]) -> Callable[..., bool]:
        def should_reuse_buffer(line: Any, free_line: Any, size: int) -> bool:
            taken = original(line, free_line, size)
            with emit.guarded():
                tell(_pooled(line, free_line, size, taken))
            return taken

        return should_reuse_buffer

    def wrap_in_place(original: Callable[..., None]) -> Callable[..., None]:
        def decide_inplace_update(node: Any) -> None:
            original(node)
            with emit.guarded():
                for decision in _in_place(node):
                    tell(decision)

        return decide_inplace_update

    with (
        patched(AllocateLine, "should_reuse_buffer", wrap_pool),
        patched(BaseSchedulerNode, "decide_inplace_update", wrap_in_place),
    ):
        yield


def _pooled(line: Any, free_line: Any, size: int, taken: bool) -> ReuseDecision:
    return ReuseDecision(
        graph_id=whereabouts.graph_id() or "",
        buffer=line.node.get_name(),
        candidate=free_line.node.get_name(),
        kind="pool",
        verdict="taken" if taken else "refused",
        reason=None if taken else HOLDING,
        bytes=int(size),
    )


def _in_place(node: Any) -> Iterator[ReuseDecision]:
    """What became of each buffer that a loop writes, for each buffer of the same size that it reads."""
    from torch._inductor.virtualized import V

    made = getattr(V.kernel, "inplace_update_buffers", None)
    if made is None or node.is_extern() or node.is_template():
        return
    for written in node.get_outputs():
        name, size = written.get_name(), reading.buffer_bytes(written.node)
        for dependency in node.read_writes.reads if size else ():
            reason = None if made.get(name) == dependency.name else _refusal(node, dependency, size, name in made)
            if made.get(name) == dependency.name or reason is not None:
                yield ReuseDecision(
                    graph_id=whereabouts.graph_id() or "",
                    buffer=name,
                    candidate=dependency.name,
                    kind="in_place",
                    verdict="refused" if reason else "taken",
                    reason=reason,
                    bytes=size,
                )


def _refusal(node: Any, dependency: Any, size: int | None, settled: bool) -> str | None:
    """Why a loop may not overwrite what it reads; None where that was no chance: another size, or taken elsewhere."""
    scheduler = node.scheduler
    donated = getattr(scheduler, "name_to_donated_buffer", {})
    held = scheduler.name_to_buf.get(dependency.name) or donated.get(dependency.name)
    if settled or (held is not None and reading.buffer_bytes(held.node) != size):
        return None
    if held is None:
        return "an input of the graph: the caller holds it" if _same_input(dependency.name, size) else None
    done = (node.ancestors, scheduler.completed_operations, ("OUTPUT",))  # not joined: the second holds the whole graph
    others = [user.node.get_name() for user in held.users if user.node is not node]
    later = [name for name in others if not any(name in names for names in done)]
    if later:
        return f"{', '.join(later[:3])} still {'needs' if len(later) == 1 else 'need'} it"
    if "OUTPUT" in others:  # torch's name for the graph's result (Scheduler.compute_dependencies)
        return "the graph returns it"
    if not any(user.node is node and user.can_inplace for user in held.users):
        return "its elements are read at other places than they are written"
    return "layout, alias or dtype does not fit"


def _same_input(name: str, size: int | None) -> bool:
    from torch._inductor.virtualized import V

    value = V.graph.graph_inputs.get(name)
    storage = getattr(getattr(value, "data", None), "data", None)
    return storage is not None and reading.buffer_bytes(storage) == size
