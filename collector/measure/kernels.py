"""Kernels of one step: how many run, which they are, and how long each takes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch._C._autograd import DeviceType

from fusionscope.collector.measure.profile import Profile, profile_steps
from fusionscope.collector.measure.step import Step
from fusionscope.collector.measure.wrappers import KERNEL, kernels_marked, kernels_of, wrappers
from fusionscope.storage.records import KernelTiming, Measurement

STEPS = 10  # profiled
GraphOf = Callable[[str], str | None]

_CUDA_METHOD = "device kernels in the profiler, copies and fills by the driver left out"
_CPU_METHOD = (
    "operators in the profiler that have a CPU kernel of their own (no views, no allocations; what such an operator "
    "calls counts with it), and calls of generated C++ kernels"
)
_BACKENDS = ("CPU", "CompositeExplicitAutograd")
_NO_KERNEL = {"aten::_unsafe_view", "aten::_local_scalar_dense", "aten::resize_", "aten::set_", "aten::record_stream"}


@dataclass(frozen=True)
class Launch:
    """One run of a kernel, in the graph whose wrapper launched it, where that is known."""

    name: str
    graph_id: str | None
    step: int
    us: float


def kernel_records(
    variant: str, step: Step, device: torch.device, graph_of: GraphOf
) -> list[Measurement | KernelTiming]:
    """The number of kernels that a settled step runs, and the time of each by name."""
    on_cuda = device.type == "cuda"
    with nullcontext() if on_cuda or variant == "eager" else kernels_marked():
        profile = profile_steps(step, STEPS, device)
    launches = list(_device_launches(profile, graph_of) if on_cuda else _host_launches(profile, graph_of))
    counted = Measurement(
        variant=variant,
        metric="kernels",
        median=len(launches) / STEPS,
        samples=STEPS,
        unit="count",
        method=f"{_CUDA_METHOD if on_cuda else _CPU_METHOD}; mean of {STEPS} steps",
    )
    return [counted, *_timings(variant, launches, on_cuda)]


def operators_with_kernel() -> set[str]:
    """CPU operators that do work of their own, by the profiler's name for them.

    These have a kernel registered for the CPU or for all backends at once. Left out are those that only call others
    (CompositeImplicitAutograd), return a view, or only allocate.
    """
    registered = (name for key in _BACKENDS for name in torch._C._dispatch_get_registrations_for_dispatch_key(key))
    # An `out` overload is generated for composites too, so it says nothing about the operator that was called.
    operators = {name.partition(".")[0] for name in registered if "out" not in name.partition(".")[2]}
    return {operator for operator in operators if not _moves_nothing(operator)}


def _moves_nothing(operator: str) -> bool:
    if operator in _NO_KERNEL or operator.startswith(("aten::empty", "aten::new_empty")):
        return True
    schemas = torch._C._jit_get_schemas_for_operator(operator)
    results = (result.alias_info for schema in schemas for result in schema.returns)
    return any(alias is not None and not alias.is_write for alias in results)


def _host_launches(profile: Profile, graph_of: GraphOf) -> Iterator[Launch]:
    operators = operators_with_kernel()
    for number, step in enumerate(profile.steps):
        for event in _outermost_kernels(step.children, operators):
            wrapper, _, name = event.name.removeprefix(KERNEL).rpartition(" ")
            yield Launch(name, graph_of(wrapper) if wrapper else None, number, event.duration_time_ns / 1000)


def _outermost_kernels(events: list[Any], operators: set[str]) -> Iterator[Any]:
    for event in events:
        if event.name.startswith(KERNEL) or event.name in operators:
            yield event
        else:
            yield from _outermost_kernels(event.children, operators)


def _device_launches(profile: Profile, graph_of: GraphOf) -> Iterator[Launch]:
    """Kernels that the device ran in the marked steps, each of which ends in a synchronisation."""
    starts = [step.start_time_ns for step in profile.steps]
    graphs = _graphs_by_kernel(graph_of)
    for event in profile.kineto:
        number = bisect_right(starts, event.start_ns()) - 1
        if number >= 0 and _is_device_kernel(event):
            yield Launch(event.name(), graphs.get(event.name()), number, event.duration_ns() / 1000)


def _is_device_kernel(event: Any) -> bool:
    on_device = event.device_type() == DeviceType.CUDA and not event.is_user_annotation()
    return on_device and not event.name().startswith(("Memcpy", "Memset"))


def _graphs_by_kernel(graph_of: GraphOf) -> dict[str, str]:
    """Kernel name -> the graph that it belongs to, for names that only one recorded graph uses."""
    graphs: dict[str, set[str]] = defaultdict(set)
    for wrapper in wrappers():
        graph_id = graph_of(str(wrapper.__file__))
        for name in kernels_of(wrapper) if graph_id else ():
            graphs[name].add(str(graph_id))
    return {name: ids.pop() for name, ids in graphs.items() if len(ids) == 1}


def _timings(variant: str, launches: list[Launch], on_cuda: bool) -> Iterator[KernelTiming]:
    by_kernel: dict[tuple[str, str | None], list[Launch]] = defaultdict(list)
    for launch in launches:
        by_kernel[launch.name, launch.graph_id].append(launch)
    clock = "device time in the profiler" if on_cuda else "host time in the profiler, callees and allocations included"
    for (name, graph_id), runs in by_kernel.items():
        yield KernelTiming(
            name=name,
            kernel_id=f"{graph_id}/{name}" if graph_id else None,
            variant=variant,
            calls=round(len(runs) / STEPS),
            median_us=median(run.us for run in runs),
            total_us=median(sum(run.us for run in runs if run.step == number) for number in range(STEPS)),
            method=f"{clock}; medians over {STEPS} steps",
        )
