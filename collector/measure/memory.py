"""Memory of one step as the allocator saw it: a curve of live bytes above the step's entry, and its peak."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType

from fusionscope.collector.measure.profile import MARK, Profile, descend, profile_steps
from fusionscope.collector.measure.step import Step, synchronize
from fusionscope.collector.measure.wrappers import LINE, lines_marked
from fusionscope.storage.records import Measurement, MemoryPoint

CURVES = ("eager", "compiled")  # variants whose curve is kept; of the others the peak is
_CPU_METHOD = "highest sum of the profiler's allocation events of one step, above its entry; bytes as requested"
_CUDA_METHOD = (
    "torch.cuda.max_memory_allocated() over one step, above memory_allocated() at its entry; blocks as the caching "
    "allocator rounds them"
)
_POOL_METHOD = "segments of all private pools in torch.cuda.memory_snapshot(), as reserved for CUDA graphs"
_CPU_BASE = "distinct storages of all CPU tensors that Python holds before the step"
_CUDA_BASE = "torch.cuda.memory_allocated() before the step"


def memory_records(variant: str, step: Step, device: torch.device) -> Iterator[Measurement | MemoryPoint]:
    """The curve of a warmed-up step, its peak, and the bytes alive before it.

    A step that replays a CUDA graph allocates in the graph's private pool, which the allocator does not count:
    the size of the pools is given then, and neither curve nor peak.
    """
    on_cuda = device.type == "cuda"
    base_bytes = alive_bytes(device)
    yield _bytes(variant, "base_bytes", base_bytes, _CUDA_BASE if on_cuda else _CPU_BASE)
    profile = _profiled(variant, step, device)
    if any(event.name() == "cudaGraphLaunch" for event in profile.kineto):
        yield _bytes(variant, "graph_pool_bytes", _graph_pool_bytes(), _POOL_METHOD)
        return
    points = memory_curve(variant, profile, device, base_bytes)
    highest = max((point.live_bytes for point in points), default=0)
    peak = _cuda_peak(step, device) if on_cuda else max(highest, 0)
    yield _bytes(variant, "peak_bytes", peak, _CUDA_METHOD if on_cuda else _CPU_METHOD)
    if variant in CURVES:
        yield from points


def memory_curve(variant: str, profile: Profile, device: torch.device, base_bytes: int) -> list[MemoryPoint]:
    """One point per allocation or free of the profiled step, in order of time."""
    begin, end = profile.steps[0].start_time_ns, profile.steps[0].end_time_ns
    events = [event for event in _allocations(profile.tree, device) if begin <= event.start_time_ns <= end]
    return list(_points(variant, events, begin, base_bytes))


def _profiled(variant: str, step: Step, device: torch.device) -> Profile:
    """One step; compiled code is traced line by line, so that a point's label is its wrapper line."""
    with lines_marked() if variant == "compiled" else nullcontext():
        return profile_steps(step, 1, device, memory=True)


def _bytes(variant: str, metric: str, value: int, method: str) -> Measurement:
    return Measurement(variant=variant, metric=metric, median=value, unit="bytes", method=method)


def alive_bytes(device: torch.device) -> int:
    """Bytes that are allocated now: inputs, weights, optimizer state and whatever else the process holds.

    The CPU has no such counter, so the distinct storages of the tensors that Python knows are summed.
    """
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    # Exact types: subclasses such as FakeTensor, which compiling leaves behind, have no memory of their own.
    tensors: list[Tensor] = [item for item in gc.get_objects() if type(item) in (Tensor, nn.Parameter)]
    storages = (tensor.untyped_storage() for tensor in tensors if tensor.device == device and _dense(tensor))
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _dense(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and not torch._is_functional_tensor(tensor)


def _cuda_peak(step: Step, device: torch.device) -> int:
    synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    entry = torch.cuda.memory_allocated(device)
    step()
    synchronize(device)
    return torch.cuda.max_memory_allocated(device) - entry


def _graph_pool_bytes() -> int:
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return sum(segment["total_size"] for segment in segments if tuple(segment["segment_pool_id"]) != (0, 0))


def _allocations(tree: list[Any], device: torch.device) -> list[Any]:
    """Allocation events of the device, from all threads: on CUDA the backward pass runs in autograd's own."""
    found = (event for event in descend(tree) if event.tag == _EventType.Allocation)
    return sorted(
        (event for event in found if event.extra_fields.device.type == device.type),
        key=lambda event: event.start_time_ns,
    )


def _points(variant: str, events: list[Any], begin_ns: int, base_bytes: int) -> Iterator[MemoryPoint]:
    live = 0
    for number, event in enumerate(events):
        live += event.extra_fields.alloc_size
        yield MemoryPoint(
            graph_id="",
            basis="measured",
            variant=variant,
            step=number,
            time_us=(event.start_time_ns - begin_ns) / 1000,
            live_bytes=live,
            base_bytes=base_bytes,
            delta_bytes=event.extra_fields.alloc_size,
            label=_label(event),
        )


def _label(event: Any) -> str | None:
    """The wrapper line around the event, else the operator that the model called; None for a free by Python itself."""
    label = None
    parent = event.parent
    while parent is not None and parent.name != MARK:
        label = parent.name
        if label.startswith(LINE):
            return str(label.removeprefix(LINE))
        parent = parent.parent
    return label
