"""Memory of one step as the allocator saw it: live bytes above the step's entry, its blocks, its peak explained."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from fusionscope.collector.measure.blocks import Event, Timeline, timeline
from fusionscope.collector.measure.categories import Known, PlanOf, known_blocks
from fusionscope.collector.measure.held import held_before
from fusionscope.collector.measure.lines import lines_marked
from fusionscope.collector.measure.profile import profile_steps
from fusionscope.collector.measure.residuals import residuals
from fusionscope.collector.measure.step import Step, synchronize
from fusionscope.collector.measure.wrappers import wrappers
from fusionscope.storage.records import Allocation, Measurement, MemoryPoint, MemoryResidual

CURVES = ("eager", "compiled")  # variants whose curve is kept; of the others the peak is
_CPU_METHOD = "highest sum of the profiler's allocation events of one step, above its entry; bytes as requested"
_CUDA_METHOD = (
    "torch.cuda.max_memory_allocated() over one step, above memory_allocated() at its entry; blocks as the caching "
    "allocator rounds them"
)
_RESERVED_METHOD = "torch.cuda.max_memory_reserved() over one step: the allocator's segments, used or not"
_POOL_METHOD = "segments of all private pools in torch.cuda.memory_snapshot(), as reserved for CUDA graphs"
_CPU_BASE = "distinct storages of all CPU tensors that Python holds before the step"
_CUDA_BASE = "blocks in use in torch.cuda.memory_snapshot() before the step"

_REPLACED = ("gradient", "other", "input", "optimizer", "workspace", "weight")  # the likeliest first
FREED_BEFORE = "free a block from before"

MemoryRecord = Measurement | MemoryPoint | Allocation | MemoryResidual


def memory_records(
    variant: str, step: Step, device: torch.device, inputs: Sequence[Any] = (), plan_of: PlanOf = lambda _: None
) -> Iterator[MemoryRecord]:
    """The curve of a warmed-up step, its blocks, its peak, and what is alive before it.

    A step that replays a CUDA graph allocates in the graph's private pool, which the allocator does not count:
    the size of the pools is given then, and neither curve nor peak.
    """
    on_cuda = device.type == "cuda"
    before = held_before(variant, device, inputs)
    base_bytes = sum(block.bytes for block in before)
    yield _bytes(variant, "base_bytes", base_bytes, _CUDA_BASE if on_cuda else _CPU_BASE)
    emitted = frozenset(str(wrapper.__file__) for wrapper in wrappers())
    with lines_marked(emitted):
        profile = profile_steps(step, 1, device, memory=True)
    if any(event.name() == "cudaGraphLaunch" for event in profile.kineto):
        yield _bytes(variant, "graph_pool_bytes", _graph_pool_bytes(), _POOL_METHOD)
        return
    seen = timeline(profile, device, emitted)
    points = list(_points(variant, seen, base_bytes))
    highest = max((point.live_bytes for point in points), default=0)
    yield from _cuda_peak(variant, step, device, highest) if on_cuda else [_cpu_peak(variant, highest)]
    if variant not in CURVES:
        return
    yield from points
    known = known_blocks(seen, plan_of, {block.address: block.category for block in before if block.address})
    yield from _before(before, seen)
    yield from _allocations(variant, seen, known)
    yield from residuals(variant, seen, known, plan_of)


def _bytes(variant: str, metric: str, value: int, method: str) -> Measurement:
    return Measurement(variant=variant, metric=metric, median=value, unit="bytes", method=method)


def _cpu_peak(variant: str, highest: int) -> Measurement:
    return _bytes(variant, "peak_bytes", max(highest, 0), _CPU_METHOD)


def _cuda_peak(variant: str, step: Step, device: torch.device, profiled: int) -> Iterator[MemoryRecord]:
    """The allocator's own peak, and by how much the profiled curve misses it."""
    synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    entry = torch.cuda.memory_allocated(device)
    step()
    synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - entry
    yield _bytes(variant, "peak_bytes", peak, _CUDA_METHOD)
    yield _bytes(variant, "reserved_bytes", torch.cuda.max_memory_reserved(device), _RESERVED_METHOD)
    yield MemoryResidual(
        variant=variant,
        graph_id="",
        name="profiled",
        bytes=profiled,
        explanation="highest point of the profiled curve of the whole step",
    )
    if peak != profiled:
        explanation = "the allocator's own peak over another run of the step, less the profiled curve's"
        yield MemoryResidual(
            variant=variant, graph_id="", name="another run", bytes=peak - profiled, explanation=explanation
        )


def _graph_pool_bytes() -> int:
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return sum(segment["total_size"] for segment in segments if tuple(segment["segment_pool_id"]) != (0, 0))


def _points(variant: str, seen: Timeline, base_bytes: int) -> Iterator[MemoryPoint]:
    """One point per allocation or free, in order of time."""
    live = 0
    for number, event in enumerate(seen.events):
        live += event.delta
        yield MemoryPoint(
            graph_id="",
            basis="measured",
            variant=variant,
            step=number,
            time_us=(event.time_ns - seen.begin_ns) / 1000,
            live_bytes=live,
            base_bytes=base_bytes,
            delta_bytes=event.delta,
            label=_label(event),
        )


def _label(event: Event) -> str | None:
    """The wrapper line or operator; of a free the block that it ends."""
    if event.delta >= 0:
        return event.origin.text
    if event.block.start_ns is None:
        return FREED_BEFORE
    origin = event.block.origin
    return f"free {origin.buffer or origin.text or 'a block'}"


def _before(held: Sequence[Allocation], seen: Timeline) -> Iterator[Allocation]:
    """What was there before the step, with the moment at which the step freed it.

    State that each step replaces, such as gradients, lies elsewhere by the time of the profiled step: what is freed at
    an unknown address is taken for the block of the same size that a step is likeliest to replace.
    """
    freed = {(block.address, block.bytes): block for block in seen.blocks if block.start_ns is None}
    ends = {id(one): freed.pop((one.address or 0, one.bytes)) for one in held if (one.address, one.bytes) in freed}
    replaced = sorted((one for one in held if id(one) not in ends), key=lambda one: _REPLACED.index(one.category))
    for block in freed.values():
        same = next((one for one in replaced if one.bytes == block.bytes and id(one) not in ends), None)
        if same is not None:
            ends[id(same)] = block
    for one in held:
        end = ends.get(id(one))
        yield replace(one, end_us=_us(end.end_ns, seen), last_event=end.last_event) if end else one


def _us(time_ns: int | None, seen: Timeline) -> float | None:
    return None if time_ns is None else (time_ns - seen.begin_ns) / 1000


def _allocations(variant: str, seen: Timeline, known: list[Known]) -> Iterator[Allocation]:
    for entry in known:
        block, origin = entry.block, entry.block.origin
        if block.start_ns is None:
            continue  # among those from before
        yield Allocation(
            variant=variant,
            phase=origin.phase,
            start_us=_us(block.start_ns, seen),
            end_us=_us(block.end_ns, seen),
            first_event=block.first_event,
            last_event=block.last_event,
            bytes=block.bytes,
            address=block.address,
            category=entry.category,
            graph_id=entry.graph_id,
            buffer=entry.buffer.buffer if entry.buffer else None,
            label=origin.text,
            file=origin.source[0] if origin.source else None,
            line=origin.source[1] if origin.source else None,
            source_text=linecache.getline(*origin.source).strip() or None if origin.source else None,
        )
