"""Run a model again, eager and compiled, and record latency, kernels, numerics and memory of each variant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch

from fusionscope.collector.measure import torchscript
from fusionscope.collector.measure.categories import PlanOf
from fusionscope.collector.measure.device import device_records
from fusionscope.collector.measure.kernels import GraphOf, Names, kernel_records, launches_of, profiled
from fusionscope.collector.measure.latency import latency_records, measure_latency
from fusionscope.collector.measure.memory import MemoryRecord, memory_records
from fusionscope.collector.measure.moved import moved_record
from fusionscope.collector.measure.ops import op_costs
from fusionscope.collector.measure.step import Model, Step, device_of, gradient_leaves, loss_of, state_kept
from fusionscope.collector.measure.timeline import SPANS, spans_of
from fusionscope.collector.measure.variants import Make, Variant, Variants, maker
from fusionscope.storage.conclusion_records import UNSTEADY
from fusionscope.storage.records import (
    Graph,
    GraphEdge,
    GraphNode,
    HookStatus,
    KernelTiming,
    Measurement,
    OpCost,
    TimelineSpan,
)

__all__ = ["Comparison", "Record", "compare", "maker"]

Record = MemoryRecord | KernelTiming | OpCost | TimelineSpan | HookStatus | Graph | GraphNode | GraphEdge
MISSING = {
    "latency_us": UNSTEADY,
    "peak_bytes": "peak is not recorded: a CUDA graph was replayed, whose private pool the allocator does not count",
}
MISSING_ON_CUDA = {"device_us": "time on the device is not recorded: the profiler saw no kernel"}


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
    latency_us: Mapping[str, float] = field(default_factory=dict)  # of every variant that was timed

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
    others: Mapping[str, Make] | None = None,
    emit: Callable[[Record], None],
    graph_of: GraphOf,
    plan_of: PlanOf = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Measure one step of `model`, of `compiled` and of `others` on the same inputs, and emit what was found.

    A step is a call; with `backward` it is a call, the sum of the outputs, the backward pass, and gradients set to
    None. The grad mode is the caller's. The model runs many times: gradients and random state are put back
    afterwards, other state (running statistics, counters) moves on as in any call.

    `graph_of` names the graph behind a generated wrapper file, `plan_of` gives its plan. What the model raises is not
    caught, but for `others`: one that raises a RuntimeError is left out and said so. ValueError where `backward` finds
    no output that requires a gradient.
    """
    progress("eager, first call")
    outputs = model(*inputs)
    leaves = gradient_leaves(loss_of(outputs)) if backward else None
    device = device_of(outputs, inputs, model)
    del outputs
    with state_kept(leaves or (), device):
        progress("TorchScript")
        script = torchscript.graph_records(torchscript.trace(model, inputs), inputs)
        prepared = Variants(model, inputs, leaves, device)
        variants = [prepared.eager, prepared.add("compiled", compiled), *prepared.try_all(others or {}, progress)]
        records, reasons = chain(script, prepared.records), prepared.reasons
        del prepared  # and eager's results, which would count as alive
        weigh = partial(memory_records, device=device, inputs=inputs, plan_of=plan_of)
        measured = _measured(model, variants, device, graph_of, weigh, reasons, progress)
        return _emitted(chain(records, measured), variants, device, reasons, emit)


def _emitted(
    records: Iterator[Record],
    variants: Sequence[Variant],
    device: torch.device,
    reasons: list[str],
    emit: Callable[[Record], None],
) -> Comparison:
    found: dict[tuple[str, str], float] = {}
    for record in records:
        emit(record)
        if isinstance(record, Measurement):
            found[record.variant, record.metric] = record.median
    wanted = MISSING | (MISSING_ON_CUDA if device.type == "cuda" else {})
    reasons += [
        f"{variant.name}: {reason}"
        for variant in variants
        for metric, reason in wanted.items()
        if (variant.name, metric) not in found
    ]
    emit(_status(len(found), reasons))
    return _comparison(found, reasons)


def _measured(
    model: Model,
    variants: Sequence[Variant],
    device: torch.device,
    graph_of: GraphOf,
    weigh: Callable[[str, Step], Iterator[Record]],
    reasons: list[str],
    progress: Callable[[str], None],
) -> Iterator[Record]:
    steps = {variant.name: variant.step for variant in variants}
    for name, samples in measure_latency(steps, device, progress).items():
        yield from latency_records(name, samples, device)
    for variant in variants:
        progress(f"kernels, {variant.name}")
        yield from _kernels(variant, model, device, graph_of, reasons)
        progress(f"memory, {variant.name}")
        yield from weigh(variant.name, variant.step)


def _kernels(
    variant: Variant, model: Model, device: torch.device, graph_of: GraphOf, reasons: list[str]
) -> Iterator[Record]:
    """One profile gives kernels, their times and the time line; on a GPU a lighter one gives what the device did."""
    names = Names(graph_of, variant.wrappers)
    profile = profiled(variant.name, variant.profiled, device, model)
    launches = launches_of(profile, device, names)
    yield from kernel_records(variant.name, profile, launches, device)
    if variant.name == "eager":
        yield from op_costs(profile, launches, device.type)
        moved = moved_record(variant.name, variant.step, device)
        if isinstance(moved, Measurement):
            yield moved
        else:
            reasons.append(f"{variant.name}: {moved}")
    spans, lost = spans_of(variant.name, profile, launches, device, names)
    yield from spans
    if lost:
        reasons.append(f"{variant.name}: the time line holds the {SPANS:,} longest of {SPANS + lost:,} spans")
    if device.type == "cuda":
        yield from device_records(variant.name, variant.step)


def _status(recorded: int, reasons: Sequence[str]) -> HookStatus:
    state = "partial" if reasons else "recorded"
    return HookStatus(hook="measure", state=state, reason="; ".join(reasons) or None, recorded=recorded)


def _comparison(found: Mapping[tuple[str, str], float], reasons: Sequence[str]) -> Comparison:
    return Comparison(
        eager_us=found.get(("eager", "latency_us")),
        compiled_us=found.get(("compiled", "latency_us")),
        eager_kernels=found["eager", "kernels"],
        compiled_kernels=found["compiled", "kernels"],
        eager_peak_bytes=_whole(found.get(("eager", "peak_bytes"))),
        compiled_peak_bytes=_whole(found.get(("compiled", "peak_bytes"))),
        reasons=tuple(reasons),
        latency_us={variant: value for (variant, metric), value in found.items() if metric == "latency_us"},
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
