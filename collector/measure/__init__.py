"""Run a model again, eager and compiled, and record latency, kernels and memory of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from fusionscope.collector.measure.categories import PlanOf
from fusionscope.collector.measure.kernels import GraphOf, kernel_records
from fusionscope.collector.measure.latency import latency_records, measure_latency
from fusionscope.collector.measure.memory import MemoryRecord, memory_records
from fusionscope.collector.measure.step import Model, Step, device_of, gradient_leaves, loss_of, state_kept, step_of
from fusionscope.storage.records import HookStatus, KernelTiming, Measurement

Record = MemoryRecord | KernelTiming | HookStatus
MISSING = {
    "latency_us": "latency is not recorded: every sample had a compilation inside",
    "peak_bytes": "peak is not recorded: a CUDA graph was replayed, whose private pool the allocator does not count",
}


@dataclass(frozen=True)
class Comparison:
    """Eager against compiled, one step of each. What was not recorded is None; `reasons` then says why."""

    eager_us: float | None
    compiled_us: float | None
    eager_kernels: float
    compiled_kernels: float
    eager_peak_bytes: int | None
    compiled_peak_bytes: int | None
    reasons: tuple[str, ...] = ()

    @property
    def speedup(self) -> float | None:
        """Eager's median latency over compiled's: above 1 compiled is faster."""
        if self.eager_us is None or self.compiled_us is None:
            return None
        return self.eager_us / self.compiled_us


def compare(
    model: Model,
    compiled: Model,
    inputs: Sequence[Any],
    *,
    backward: bool = False,
    emit: Callable[[Record], None],
    graph_of: GraphOf,
    plan_of: PlanOf = lambda _: None,
    first_call_s: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Measure one step of `model` and of `compiled` on the same inputs, and emit what was found as records.

    A step is a call; with `backward` it is a call, the sum of the outputs, the backward pass, and gradients set to
    None. The grad mode is the caller's. The model runs many times: gradients and random state are put back
    afterwards, other state (running statistics, counters) moves on as in any call.

    `graph_of` names the graph behind a generated wrapper file, `plan_of` gives its plan. `first_call_s` is passed on
    as a measurement. What the model raises is not caught; ValueError where `backward` finds no output that requires a
    gradient.
    """
    progress("eager, first call")
    outputs = model(*inputs)
    leaves = gradient_leaves(loss_of(outputs)) if backward else None
    device = device_of(outputs, inputs, model)
    del outputs
    steps = {"eager": step_of(model, inputs, leaves), "compiled": step_of(compiled, inputs, leaves)}
    found: dict[tuple[str, str], float] = {}
    with state_kept(leaves or (), device):
        for record in chain(_first_call(first_call_s), _measured(steps, device, inputs, (graph_of, plan_of), progress)):
            emit(record)
            if isinstance(record, Measurement):
                found[record.variant, record.metric] = record.median
    reasons = tuple(
        f"{variant}: {reason}"
        for variant in steps
        for metric, reason in MISSING.items()
        if (variant, metric) not in found
    )
    emit(_status(len(found), reasons))
    return _comparison(found, reasons)


def _measured(
    steps: Mapping[str, Step],
    device: torch.device,
    inputs: Sequence[Any],
    behind: tuple[GraphOf, PlanOf],
    progress: Callable[[str], None],
) -> Iterator[Record]:
    graph_of, plan_of = behind
    for variant, samples in measure_latency(steps, device, progress).items():
        yield from latency_records(variant, samples, device)
    for variant, step in steps.items():
        progress(f"kernels, {variant}")
        yield from kernel_records(variant, step, device, graph_of)
        progress(f"memory, {variant}")
        yield from memory_records(variant, step, device, inputs, plan_of)


def _first_call(seconds: float | None) -> Iterator[Record]:
    if seconds is not None:
        method = "wall time of the first compiled call, compilation included"
        yield Measurement(variant="compiled", metric="first_call_s", median=seconds, unit="s", method=method)


def _status(recorded: int, reasons: Sequence[str]) -> HookStatus:
    state = "partial" if reasons else "recorded"
    return HookStatus(hook="measure", state=state, reason="; ".join(reasons) or None, recorded=recorded)


def _comparison(found: Mapping[tuple[str, str], float], reasons: tuple[str, ...]) -> Comparison:
    return Comparison(
        eager_us=found.get(("eager", "latency_us")),
        compiled_us=found.get(("compiled", "latency_us")),
        eager_kernels=found["eager", "kernels"],
        compiled_kernels=found["compiled", "kernels"],
        eager_peak_bytes=_whole(found.get(("eager", "peak_bytes"))),
        compiled_peak_bytes=_whole(found.get(("compiled", "peak_bytes"))),
        reasons=reasons,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
