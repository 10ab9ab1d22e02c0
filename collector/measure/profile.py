"""Profiled steps as the profiler's own event tree, in order of time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from fusionscope.collector.measure.step import Step, synchronize

MARK = "fusionscope step"  # the RecordFunction around each step that counts
PAUSE_S = 0.0005  # well above what two clocks of one machine differ by
record_function = torch._C._profiler._RecordFunctionFast  # costs well under a microsecond when no profiler runs


@dataclass(frozen=True)
class Profile:
    """What ran within the marked steps."""

    steps: list[Any]  # torch._C._profiler._ProfilerEvent of each marked step, with its children
    tree: list[Any]  # every root event, also those outside of the marks and of other threads
    kineto: list[Any]  # torch._C._autograd._KinetoEvent: the flat list, which alone holds what the device ran


def profile_steps(step: Step, count: int, device: torch.device, *, memory: bool = False) -> Profile:
    """Run the step once to settle and `count` times marked, all under the profiler.

    The settling step matters for memory: the CPU profiler reports no free of a block that was allocated before it
    started (c10/core/CPUAllocator.cpp, ProfiledCPUMemoryReporter::Delete), so state that each call replaces must
    have been allocated under it.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    settings: Any = {"profile_memory": memory, "with_stack": memory, "acc_events": True}
    with _kineto_quiet(), profile(activities=activities, **settings) as profiled:
        step()
        synchronize(device)
        for _ in range(count):
            with record_function(MARK):
                step()
                synchronize(device)
    results = profiled.profiler.kineto_results
    tree = results.experimental_event_tree()
    steps = sorted((event for event in descend(tree) if event.name == MARK), key=lambda event: event.start_time_ns)
    return Profile(steps, tree, results.events())


def profile_device(step: Step, count: int) -> list[list[Any]]:
    """What the device ran in each of `count` steps: Kineto's events, with the host's operators left out.

    That slows the host least, so the gaps between kernels stay close to what they are without a profiler. Without
    operators there are no marks: a pause of the device tells where a step ends, since Kineto's clock is the host's.
    """
    with _kineto_quiet(), profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
        step()
        pauses = [_pause_ns()]
        for _ in range(count):
            step()
            pauses.append(_pause_ns())
    events = [event for event in profiled.profiler.kineto_results.events() if on_device(event)]
    return [[event for event in events if a <= event.start_ns() < b] for a, b in pairwise(pauses)]


def on_device(event: Any) -> bool:
    """Whether a Kineto event is work of the GPU: a kernel, a copy or a fill."""
    return event.device_type() == DeviceType.CUDA and not event.is_user_annotation()


def is_kernel(event: Any) -> bool:
    """Whether an event of the device is a kernel: copies and fills are left to the driver."""
    return not event.name().startswith(("Memcpy", "Memset"))


def _pause_ns() -> int:
    """Wait until the device is idle and a little longer; the moment amid, in the nanoseconds of time.time_ns()."""
    torch.cuda.synchronize()
    time.sleep(PAUSE_S)
    amid = time.time_ns()
    time.sleep(PAUSE_S)
    return amid


def descend(events: list[Any]) -> Iterator[Any]:
    """The events and all that they hold, parents first. Stacks are deep: no recursion."""
    waiting = list(reversed(events))
    while waiting:
        event = waiting.pop()
        yield event
        waiting += reversed(event.children)


@contextmanager
def _kineto_quiet() -> Iterator[None]:
    """Keep Kineto's start and stop lines off the user's standard error; it reads the level when it is first used."""
    given = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = given or "99"
    try:
        yield
    finally:
        if given is None:
            del os.environ["KINETO_LOG_LEVEL"]
