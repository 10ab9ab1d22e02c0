"""What the device did in one step, and how fast it copies and multiplies at best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import torch

from fusionscope.collector.device import MeasuredRates
from fusionscope.collector.measure.profile import is_kernel, profile_device
from fusionscope.collector.measure.step import Step
from fusionscope.collector.measure.summary import summed_up
from fusionscope.storage.records import Measurement

STEPS = 10  # profiled
COPIED_BYTES = 1 << 30  # well beyond any L2
SIDE = 8192  # of the square matrices
TURNS = 10

_HOW = f"profiled without the host's operators; median of {STEPS} steps"
_SUM = f"sum of the times of a step's kernels, copies and fills by the driver left out; {_HOW}"
_GAPS = f"time between a step's first and last work on the device in which the device did nothing; {_HOW}"

Span = tuple[int, int]  # start and end in nanoseconds


def device_records(variant: str, step: Step) -> Iterator[Measurement]:
    """Kernel time and idle time of the device in a settled step; nothing where the profiler saw no kernel."""
    steps = [events for events in profile_device(step, STEPS) if any(map(is_kernel, events))]
    if not steps:
        return
    busy_us = [sum(event.duration_ns() for event in events if is_kernel(event)) / 1000 for events in steps]
    idle_us = [idle_ns(map(_span, events)) / 1000 for events in steps]
    yield summed_up(variant, "device_us", busy_us, unit="us", method=_SUM)
    yield summed_up(variant, "launch_gap_us", idle_us, unit="us", method=_GAPS)


def idle_ns(spans: Iterable[Span]) -> int:
    """Time between the first start and the last end that no span covers; spans may overlap."""
    idle, reached = 0, None
    for start, end in sorted(spans):
        idle += max(0, start - reached) if reached is not None else 0
        reached = max(reached or end, end)
    return idle


def measured_rates(device: torch.device) -> MeasuredRates:
    """The device's copy bandwidth and bf16 matmul rate; takes well under a second.

    A copy reads and writes every byte; a product of square matrices takes 2 n³ operations.
    """
    copy_s, matmul_s = _copy_s(device), _matmul_s(device)
    torch.cuda.empty_cache()
    return MeasuredRates(
        copy_gbps=2 * COPIED_BYTES / copy_s / 1e9,
        matmul_tflops=2 * SIDE**3 / matmul_s / 1e12,
        method=f"median of {TURNS} by CUDA events: copy of {COPIED_BYTES >> 20} MiB within the device, bytes read and "
        f"written; product of two random {SIDE}x{SIDE} bf16 matrices",
    )


def _copy_s(device: torch.device) -> float:
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return _seconds(lambda: target.copy_(source))


def _matmul_s(device: torch.device) -> float:
    """Random values: a GPU multiplies zeros faster, since it then draws less power."""
    generator = torch.Generator(device).manual_seed(0)  # the model's random numbers stay as they are
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=device, generator=generator) for _ in range(2))
    product = torch.empty_like(a)
    return _seconds(lambda: torch.mm(a, b, out=product))


def _seconds(work: Callable[[], object]) -> float:
    """Median seconds of the work on the device, after three turns to warm up."""
    for _ in range(3):
        work()
    marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(TURNS + 1)]  # type: ignore[no-untyped-call]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return float(median(a.elapsed_time(b) for a, b in pairwise(marks))) / 1000


def _span(event: Any) -> Span:
    return event.start_ns(), event.start_ns() + event.duration_ns()
