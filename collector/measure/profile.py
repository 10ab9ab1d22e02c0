"""Profiled steps as the profiler's own event tree, in order of time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fusionscope.collector.measure.step import Step, synchronize

MARK = "fusionscope step"  # the RecordFunction around each step that counts
record_function = torch._C._profiler._RecordFunctionFast  # costs well under a microsecond when no profiler runs


@dataclass(frozen=True)
class Profile:
    """What ran within the marked steps."""

    steps: list[Any]  # torch._C._profiler._ProfilerEvent of each marked step, with its children
    tree: list[Any]  # every root event, also those outside of the marks and of other threads
    kineto: list[Any]  # torch._C._autograd._KinetoEvent: the flat list, which alone holds the device's kernels


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
