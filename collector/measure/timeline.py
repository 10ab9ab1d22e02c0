"""The time line of one profiled step: what the host issued and, on a GPU, what the device ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._C._profiler import _EventType

from fusionscope.collector.measure.kernels import Launch, Names, first_operator, is_operator, outermost
from fusionscope.collector.measure.profile import Profile
from fusionscope.collector.measure.wrappers import KERNEL
from fusionscope.storage.records import TimelineSpan

SPANS = 5_000  # of a variant, at most


def spans_of(
    variant: str, profile: Profile, launches: list[Launch], device: torch.device, names: Names
) -> tuple[list[TimelineSpan], int]:
    """Spans of the step of median length, and how many were left out: of too many the longest stay."""
    number = sorted(range(len(profile.steps)), key=lambda n: profile.steps[n].duration_time_ns)[len(profile.steps) // 2]
    step = profile.steps[number]
    ran = [_of_launch(variant, launch, step, device) for launch in launches if launch.step == number]
    issued = _issued(variant, profile, step, names) if device.type == "cuda" else ()
    spans = sorted([*ran, *issued], key=lambda span: span.start_us - span.end_us)
    return sorted(spans[:SPANS], key=lambda span: span.start_us), max(0, len(spans) - SPANS)


def _of_launch(variant: str, launch: Launch, step: Any, device: torch.device) -> TimelineSpan:
    return TimelineSpan(
        variant=variant,
        lane="device" if device.type == "cuda" else "host",
        name=launch.name,
        start_us=(launch.start_ns - step.start_time_ns) / 1000,
        end_us=(launch.end_ns - step.start_time_ns) / 1000,
        kernel_id=launch.kernel_id,
        op=launch.op,
    )


def _issued(variant: str, profile: Profile, step: Any, names: Names) -> Iterator[TimelineSpan]:
    """The outermost operators and kernel calls of the step, those of autograd's own thread included."""
    within = [e for e in profile.tree if e is not step and step.start_time_ns <= e.start_time_ns < step.end_time_ns]
    for event in outermost([*step.children, *within], _is_operator):
        name, kernel_id = names.marked(event.name) if event.name.startswith(KERNEL) else (event.name, None)
        yield TimelineSpan(
            variant=variant,
            lane="host",
            name=name,
            start_us=(event.start_time_ns - step.start_time_ns) / 1000,
            end_us=(event.end_time_ns - step.start_time_ns) / 1000,
            kernel_id=kernel_id,
            op=event.name if is_operator(event.name) else first_operator(event),
        )


def _is_operator(event: Any) -> bool:
    return bool(event.tag == _EventType.TorchOp and is_operator(event.name))
