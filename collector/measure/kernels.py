"""Kernels of one step: how many run, which they are, what launched each, and how long each takes."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch._C._profiler import _EventType

from fusionscope.collector.measure.modules import modules_marked
from fusionscope.collector.measure.profile import Profile, descend, is_kernel, on_device, profile_steps
from fusionscope.collector.measure.step import Step
from fusionscope.collector.measure.summary import summed_up
from fusionscope.collector.measure.wrappers import KERNEL, finishing_operators, kernels_marked, kernels_of, operators_of
from fusionscope.storage.records import KernelTiming, Measurement

STEPS = 10  # profiled
GraphOf = Callable[[str], str | None]

_CUDA_METHOD = "device kernels in the profiler, copies and fills by the driver left out"
_CPU_METHOD = (
    "operators in the profiler that have a CPU kernel of their own (no views, no allocations; what such an operator "
    "calls counts with it), and calls of generated C++ kernels"
)
_PROFILED = "wall time of a step under the profiler, operators and device recorded"
_NO_KERNEL = {"aten::_unsafe_view", "aten::_local_scalar_dense", "aten::resize_", "aten::set_", "aten::record_stream"}
_COMPILED = "## Call CompiledFxGraph"  # event around a wrapper's call: torch/_inductor/output_code.py


@dataclass(frozen=True)
class Launch:
    """One run of a kernel: what asked for it, and the recorded kernel that it is a call of, where that is known."""

    name: str
    kernel_id: str | None
    op: str | None  # operator that launched it; None for a generated kernel
    step: int
    start_ns: int
    end_ns: int
    asker: Any  # the profiler's event of the operator, or of the marked call; None for a replayed CUDA graph

    @property
    def us(self) -> float:
        return (self.end_ns - self.start_ns) / 1000


class Names:
    """Finds the recorded kernel behind an event, by the graphs of the wrappers that a variant brought along."""

    def __init__(self, graph_of: GraphOf, wrappers: Iterable[ModuleType]) -> None:
        self.graph_of = graph_of
        self._generated: dict[str, set[str]] = defaultdict(set)
        self._operators: dict[str, set[str]] = defaultdict(set)
        self._finishing: set[str] = set()
        for wrapper in wrappers:
            self._finishing |= finishing_operators(wrapper)
            if (graph_id := graph_of(str(wrapper.__file__))) is not None:
                for name in kernels_of(wrapper):
                    self._generated[name].add(f"{graph_id}/{name}")
                for operator, name in operators_of(wrapper).items():
                    self._operators[operator].add(f"{graph_id}/{name}")

    def marked(self, event: str) -> tuple[str, str | None]:
        """Name and id of the kernel of a mark: `kernels_marked` names the wrapper that calls it."""
        wrapper, _, name = event.removeprefix(KERNEL).rpartition(" ")
        graph_id = self.graph_of(wrapper)
        return name, f"{graph_id}/{name}" if graph_id else None

    def generated(self, name: str) -> str | None:
        """The kernel of that name, where only one graph has it."""
        return _only(self._generated.get(name))

    def operator(self, event: Any) -> str | None:
        """The kernel that is an operator of torch called by a wrapper, around or at the event.

        The innermost is not it where an operator calls another: aten::_scaled_dot_product_cudnn_attention runs
        aten::_cudnn_attention_forward. None where several graphs have it.
        """
        asked = (self._operators[outer.name] for outer in above(event) if outer.name in self._operators)
        return _only(next(asked, None))

    def finished(self, call: Any) -> str | None:
        """The kernel whose reduction an operator finishes that a wrapper calls right after it."""
        if call.name not in self._finishing:
            return None
        before = [e.name for e in call.parent.children if e.start_time_ns < call.start_time_ns]
        return next((self.marked(name)[1] for name in reversed(before) if name.startswith(KERNEL)), None)


def profiled(variant: str, step: Step, device: torch.device, model: Any) -> Profile:
    """Settled steps under the profiler: of eager with each module's forward marked, else each kernel call."""
    with modules_marked(model) if variant == "eager" else kernels_marked():
        return profile_steps(step, STEPS, device)


def launches_of(profile: Profile, device: torch.device, names: Names) -> list[Launch]:
    """Every kernel that ran in the marked steps."""
    return list(_device_launches(profile, names) if device.type == "cuda" else _host_launches(profile, names))


def kernel_records(
    variant: str, profile: Profile, launches: list[Launch], device: torch.device
) -> Iterator[Measurement | KernelTiming]:
    """The number of kernels that a settled step runs, the time of each by name, and what the profiler took itself."""
    on_cuda = device.type == "cuda"
    yield Measurement(
        variant=variant,
        metric="kernels",
        median=len(launches) / STEPS,
        samples=STEPS,
        unit="count",
        method=f"{_CUDA_METHOD if on_cuda else _CPU_METHOD}; mean of {STEPS} steps",
    )
    wall_us = [step.duration_time_ns / 1000 for step in profile.steps]
    yield summed_up(variant, "profiled_us", wall_us, unit="us", method=f"{_PROFILED}; median of {STEPS} steps")
    yield from _timings(variant, launches, on_cuda)


def operators_with_kernel(device: str = "CPU") -> set[str]:
    """Operators that do work of their own on a device (CPU, CUDA), by the profiler's name for them.

    These have a kernel registered for that device or for all backends at once. Left out are those that only call others
    (CompositeImplicitAutograd), return a view, or only allocate.
    """
    keys = (device, "CompositeExplicitAutograd")
    registered = (name for key in keys for name in torch._C._dispatch_get_registrations_for_dispatch_key(key))
    # An `out` overload is generated for composites too, so it says nothing about the operator that was called.
    operators = {name.partition(".")[0] for name in registered if "out" not in name.partition(".")[2]}
    return {operator for operator in operators if not _moves_nothing(operator)}


def _moves_nothing(operator: str) -> bool:
    if operator in _NO_KERNEL or operator.startswith(("aten::empty", "aten::new_empty")):
        return True
    schemas = torch._C._jit_get_schemas_for_operator(operator)
    results = (result.alias_info for schema in schemas for result in schema.returns)
    return any(alias is not None and not alias.is_write for alias in results)


def _host_launches(profile: Profile, names: Names) -> Iterator[Launch]:
    operators = operators_with_kernel()
    for number, step in enumerate(profile.steps):
        for event in outermost(step.children, lambda event: event.name in operators):
            yield _host_launch(event, number, names)


def _host_launch(event: Any, step: int, names: Names) -> Launch:
    if event.name.startswith(KERNEL):
        name, kernel_id = names.marked(event.name)
        op = first_operator(event)
    else:
        name = op = event.name
        kernel_id = names.operator(event) if any(outer.name.startswith(_COMPILED) for outer in above(event)) else None
    return Launch(name, kernel_id, op, step, event.start_time_ns, event.end_time_ns, event)


def outermost(events: Iterable[Any], wanted: Callable[[Any], bool]) -> Iterator[Any]:
    """The marked kernel calls and the wanted events, without those inside another of them."""
    for event in events:
        if event.name.startswith(KERNEL) or wanted(event):
            yield event
        else:
            yield from outermost(event.children, wanted)


def is_operator(name: str) -> bool:
    """Whether an event is an operator of torch, by the dispatcher's name for it."""
    return "::" in name and not name.startswith(("autograd::", KERNEL))


def first_operator(event: Any) -> str | None:
    return next((below.name for below in descend(event.children) if is_operator(below.name)), None)


def above(event: Any) -> Iterator[Any]:
    """The event, then those that hold it, innermost first."""
    while event is not None:
        yield event
        event = event.parent


def _device_launches(profile: Profile, names: Names) -> Iterator[Launch]:
    """Kernels that the device ran in the marked steps, each of which ends in a synchronisation."""
    starts = [step.start_time_ns for step in profile.steps]
    askers = {event.correlation_id: event for event in descend(profile.tree) if event.tag == _EventType.TorchOp}
    for event in profile.kineto:
        number = bisect_right(starts, event.start_ns()) - 1
        if number >= 0 and on_device(event) and is_kernel(event):
            asker = askers.get(event.linked_correlation_id())
            kernel_id, op = _asked_for(event.name(), asker, names)
            end_ns = event.start_ns() + event.duration_ns()
            yield Launch(event.name(), kernel_id, op, number, event.start_ns(), end_ns, asker)


def _asked_for(kernel: str, asker: Any, names: Names) -> tuple[str | None, str | None]:
    """The recorded kernel and the operator behind a kernel of the device; a replayed CUDA graph only knows its name."""
    op = call = None
    for event in above(asker):
        if event.name.startswith(KERNEL):
            return names.marked(event.name)[1], op
        if event.name.startswith(_COMPILED) and op is not None:
            return names.operator(asker) or names.finished(call), op
        op, call = op or (event.name if is_operator(event.name) else None), event
    return names.generated(kernel), op


def _only(ids: set[str] | None) -> str | None:
    return next(iter(ids)) if ids and len(ids) == 1 else None


def _timings(variant: str, launches: list[Launch], on_cuda: bool) -> Iterator[KernelTiming]:
    by_kernel: dict[tuple[str, str | None, str | None], list[Launch]] = defaultdict(list)
    for launch in launches:
        by_kernel[launch.name, launch.kernel_id, launch.op].append(launch)
    clock = "device time in the profiler" if on_cuda else "host time in the profiler, callees and allocations included"
    for (name, kernel_id, op), runs in by_kernel.items():
        yield KernelTiming(
            name=name,
            kernel_id=kernel_id,
            variant=variant,
            calls=round(len(runs) / STEPS),
            median_us=median(run.us for run in runs),
            total_us=median(per_step(runs).values()),
            method=f"{clock}; medians over {STEPS} steps",
            op=op,
        )


def per_step(launches: Iterable[Launch]) -> Mapping[int, float]:
    """Microseconds of the launches in each profiled step."""
    total = dict.fromkeys(range(STEPS), 0.0)
    for launch in launches:
        total[launch.step] += launch.us
    return total
