"""Plan and measured peak, reconciled: the named parts that lie between them.

For each run of a wrapper the measured peak above its entry is the plan's peak, plus the scratch memory of its library
kernels, plus what the allocator rounds up, plus blocks that no plan has, plus inputs that the caller keeps. Where
scratch memory lifts another moment of the call above the planned peak, what the plan counts less there is taken off.
What is left is called unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fusionscope.collector.ledger.plan import Plan
from fusionscope.collector.measure.blocks import Timeline, WrapperCall
from fusionscope.collector.measure.categories import Known, PlanOf
from fusionscope.storage.records import MemoryResidual

EXPLAINED = {
    "plan": "the highest point of the plan",
    "workspace": "scratch memory that library kernels allocate and free themselves",
    "rounding": "the allocator hands out blocks that are larger than asked for",
    "not planned": "blocks that a wrapper line allocated and the plan does not have",
    "another moment": "scratch memory lifts another step above the planned peak; the plan counts less there",
    "kept by the caller": "inputs that the plan frees, and that the caller of the graph still holds",
    "unexplained": "what the parts above do not account for",
}


@dataclass(frozen=True)
class _Moment:
    """The highest point of one run of a wrapper."""

    measured: int
    alive: list[Known]  # allocated in the run
    given_up: list[Known]  # there before it, and freed by it


def residuals(variant: str, timeline: Timeline, known: list[Known], plan_of: PlanOf) -> Iterator[MemoryResidual]:
    """The parts of the measured peak of each graph, of its highest run; parts of zero bytes are left out."""
    highest: dict[str, tuple[_Moment, Plan]] = {}
    for call in timeline.calls:
        plan = plan_of(call.file)
        if plan is None or not plan.points:
            continue
        moment, graph_id = _peak(timeline, known, call), plan.points[0].graph_id
        if graph_id not in highest or moment.measured > highest[graph_id][0].measured:
            highest[graph_id] = moment, plan
    for graph_id, (moment, plan) in highest.items():
        for name, size in _parts(moment, plan).items():
            if size or name == "plan":
                explanation = EXPLAINED[name]
                yield MemoryResidual(variant=variant, graph_id=graph_id, name=name, bytes=size, explanation=explanation)


def _peak(timeline: Timeline, known: list[Known], call: WrapperCall) -> _Moment:
    of_block = {id(entry.block): entry for entry in known}
    inside = [event for event in timeline.events if call.start_ns <= event.time_ns <= call.end_ns]
    live = highest = 0
    at = -1
    for index, event in enumerate(inside):
        live += event.delta
        if live > highest:
            highest, at = live, index
    made: dict[int, Known] = {}
    given_up: list[Known] = []
    for event in inside[: at + 1]:
        entry = of_block[id(event.block)]
        if event.delta >= 0:
            made[id(event.block)] = entry
        elif made.pop(id(event.block), None) is None:
            given_up.append(entry)
    return _Moment(highest, list(made.values()), given_up)


def _parts(moment: _Moment, plan: Plan) -> dict[str, int]:
    planned_peak = max(point.live_bytes for point in plan.points)
    planned = [entry for entry in moment.alive if entry.buffer is not None]
    unplanned = [entry for entry in moment.alive if entry.buffer is None]
    parts = {
        "plan": planned_peak,
        "workspace": sum(entry.block.bytes for entry in unplanned if entry.block.is_scratch),
        "not planned": sum(entry.block.bytes for entry in unplanned if not entry.block.is_scratch),
        "rounding": _rounding(planned) - _rounding(moment.given_up),
    }
    at_that_moment = sum(e.planned_bytes for e in planned) - sum(e.planned_bytes for e in moment.given_up)
    lower = at_that_moment - planned_peak
    parts["another moment"] = lower if any(p.live_bytes == at_that_moment for p in plan.points) else 0
    left = moment.measured - sum(parts.values())
    parts["kept by the caller"] = left if left == _kept(moment, plan) else 0
    parts["unexplained"] = moment.measured - sum(parts.values())
    return parts


def _kept(moment: _Moment, plan: Plan) -> int:
    """Bytes of inputs that the plan has freed by its peak, less those that were freed."""
    peak = max(plan.points, key=lambda point: point.live_bytes).step
    inputs = [b for b in plan.buffers.values() if b.allocated_at is None and b.freed_at is not None]
    ends = ((given.bytes or 0, plan.last_in_block(given).freed_at) for given in inputs)
    freed = sum(size for size, end in ends if end is not None and end <= peak)
    return freed - sum(entry.planned_bytes for entry in moment.given_up)


def _rounding(entries: list[Known]) -> int:
    return sum(entry.block.bytes - entry.planned_bytes for entry in entries)
