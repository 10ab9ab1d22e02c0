"""Inductor's own estimate of live memory over the schedule, recomputed by its own functions for the final order.

It counts buffers that are fused away and knows no in-place reuse, so it is not the plan (torch/_inductor/memory.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.storage.records import MemoryPoint


def timeline(graph_id: str, nodes: Any, lowering: Any) -> list[MemoryPoint]:
    """Live bytes after each scheduler step: at its peak (allocated, nothing freed yet) and after its frees."""
    from torch._inductor import memory
    from torch.utils._ordered_set import OrderedSet

    scheduler = lowering.scheduler
    inputs, outputs = OrderedSet(lowering.graph_inputs.keys()), OrderedSet(lowering.get_output_names())
    with _planning_marks_kept(scheduler.name_to_buf.values(), nodes):
        _, freeable = memory.prepare_planning_info(
            nodes, scheduler.name_to_buf, scheduler.name_to_fused_node, inputs, outputs
        )
        _, steps = memory.estimate_peak_memory_allocfree(nodes, freeable, outputs)[:2]
    return [
        MemoryPoint(
            graph_id=graph_id,
            basis="estimate",
            variant="compiled",
            step=step,
            live_bytes=int(allocated),
            label=node.get_name(),
        )
        for step, (node, (allocated, _freed)) in enumerate(zip(nodes, steps, strict=True))
    ]


@contextmanager
def _planning_marks_kept(buffers: Any, nodes: Any) -> Iterator[None]:
    """prepare_planning_info writes mpi_buffer and mpi_node, which later passes read: put back what was there."""
    marked = [(b, "mpi_buffer", getattr(b, "mpi_buffer", None)) for b in buffers]
    marked += [(n, "mpi_node", getattr(n, "mpi_node", None)) for n in nodes]
    try:
        yield
    finally:
        for owner, name, value in marked:
            if value is not None:
                setattr(owner, name, value)
