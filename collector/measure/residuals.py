"""Plan and measured peak, reconciled: the named parts that lie between them.

Each run of a wrapper is laid over its plan event by event, so that its highest moment has a step of the plan. What is
alive there in one and not in the other has a name, and so has what the allocator adds to a block. What is left then is
called unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from fusionscope.collector.ledger.plan import Plan
from fusionscope.collector.measure.blocks import Event, Timeline, WrapperCall
from fusionscope.collector.measure.categories import Known, PlanOf, best_fit
from fusionscope.storage.records import Buffer, MemoryResidual

EXPLAINED = {
    "plan": "the highest point of the plan",
    "another moment": "the run is highest at another step than the plan; what the plan counts there, less its highest",
    "workspace": "scratch memory that library kernels allocate and free themselves",
    "rounding": "the allocator hands out blocks that are larger than asked for",
    "not planned": "blocks that a wrapper line allocated and the plan does not have",
    "not allocated": "results that a library kernel declares, and did not make or freed at once",
    "kept by the caller": "inputs that the plan frees, and that the caller of the graph still holds",
    "given up by the caller": "inputs that the plan leaves to the caller, which held them no longer",
    "freed later": "buffers that the plan has freed by then, and that are still alive",
    "freed earlier": "buffers that the plan holds, and that are freed already",
    "unexplained": "what the parts above do not account for",
}


@dataclass
class _Moment:
    """One run of a wrapper up to an event of it, laid over its plan."""

    plan: Plan
    ends: dict[str, int | None]  # of the plan: buffer → step at which the block is freed that it lives in
    live: int = 0  # bytes above the entry of the run
    step: int = -1  # of the plan, the last that was seen to happen
    alive: dict[int, Known] = field(default_factory=dict)  # by id of the block: allocated in the run
    ended: set[str] = field(default_factory=set)  # planned buffers that were allocated in the run, and freed
    given_up: list[tuple[int, int]] = field(default_factory=list)  # from before the run, freed by it: bytes, as asked
    asked: dict[str, int] = field(init=False)  # inputs that the plan frees, and the run has not: their bytes

    def __post_init__(self) -> None:
        """No event has happened yet."""
        self.asked = {given.buffer: given.bytes or 0 for given in self.freed_inputs}

    @property
    def freed_inputs(self) -> list[Buffer]:
        """Inputs that the plan frees, first those that it frees first."""
        given = [buffer for buffer in self.plan.buffers.values() if buffer.allocated_at is None]
        freed = (buffer for buffer in given if self.ends[buffer.buffer] is not None)
        return sorted(freed, key=lambda buffer: self.ends[buffer.buffer] or 0)

    def take(self, event: Event, entry: Known) -> None:
        """Go on by one event."""
        self.live += event.delta
        if event.delta >= 0:
            self.alive[id(event.block)] = entry
            self._reach(entry.buffer.allocated_at if entry.buffer else None)
        elif self.alive.pop(id(event.block), None) is None:
            self._give_up(entry)
        elif entry.buffer is not None:
            self.ended.add(entry.buffer.buffer)
            self._reach(self.ends[entry.buffer.buffer])

    def _reach(self, step: int | None) -> None:
        self.step = self.step if step is None else max(self.step, step)

    def _give_up(self, entry: Known) -> None:
        """A block from before, which the plan knows by the name of an input: by its size, as it has no other."""
        name = best_fit(self.asked, entry.block.bytes)
        self.given_up.append((entry.block.bytes, self.asked.pop(name) if name else entry.planned_bytes))
        self._reach(self.ends[name] if name else None)


def residuals(variant: str, timeline: Timeline, known: list[Known], plan_of: PlanOf) -> Iterator[MemoryResidual]:
    """The parts of the measured peak of each graph, of its highest run; parts of zero bytes are left out."""
    of_block = {id(entry.block): entry for entry in known}
    highest: dict[str, _Moment] = {}
    for call in timeline.calls:
        plan = plan_of(call.file)
        if plan is None or not plan.points:
            continue
        moment, graph_id = _peak(timeline, of_block, call, plan), plan.points[0].graph_id
        if graph_id not in highest or moment.live > highest[graph_id].live:
            highest[graph_id] = moment
    for graph_id, moment in highest.items():
        for name, size in _parts(moment).items():
            if size or name == "plan":
                explanation = EXPLAINED[name]
                yield MemoryResidual(variant=variant, graph_id=graph_id, name=name, bytes=size, explanation=explanation)


def _peak(timeline: Timeline, of_block: dict[int, Known], call: WrapperCall, plan: Plan) -> _Moment:
    inside = [event for event in timeline.events if call.start_ns <= event.time_ns <= call.end_ns]
    levels = list(accumulate(event.delta for event in inside))
    moment = _Moment(plan, plan.block_ends())
    for event in inside[: levels.index(max(levels)) + 1] if levels and max(levels) > 0 else ():
        moment.take(event, of_block[id(event.block)])
    return moment


def _parts(moment: _Moment) -> dict[str, int]:
    plan = moment.plan
    peak = max(point.live_bytes for point in plan.points)
    planned = {entry.buffer.buffer: entry for entry in moment.alive.values() if entry.buffer is not None}
    unplanned = [entry.block for entry in moment.alive.values() if entry.buffer is None]
    due = {buffer.buffer: buffer.bytes or 0 for buffer in plan.buffers.values() if _is_due(buffer, moment)}
    late = sum(entry.planned_bytes for name, entry in planned.items() if name not in due)
    kept = _kept(moment)
    parts = {
        "plan": peak,
        "another moment": (plan.points[moment.step].live_bytes if moment.step >= 0 else 0) - peak,
        "workspace": sum(block.bytes for block in unplanned if block.is_scratch),
        "not planned": sum(block.bytes for block in unplanned if not block.is_scratch),
        "rounding": _rounding(moment, planned),
        "not allocated": -sum(size for name, size in due.items() if name not in planned and name not in moment.ended),
        "freed earlier": -sum(size for name, size in due.items() if name in moment.ended),
        "freed later": late,
        "kept by the caller": max(kept, 0),
        "given up by the caller": min(kept, 0),
    }
    return parts | {"unexplained": moment.live - sum(parts.values())}


def _rounding(moment: _Moment, planned: dict[str, Known]) -> int:
    made = sum(entry.block.bytes - entry.planned_bytes for entry in planned.values())
    return made - sum(size - asked for size, asked in moment.given_up)


def _kept(moment: _Moment) -> int:
    """Bytes of inputs that the plan has freed by the moment, less those that were freed; several may share a block."""
    freed = sum(given.bytes or 0 for given in moment.freed_inputs if (moment.ends[given.buffer] or 0) <= moment.step)
    return freed - sum(asked for _, asked in moment.given_up)


def _is_due(buffer: Buffer, moment: _Moment) -> bool:
    """Whether the plan has a block alive at the moment that this buffer was the first to live in."""
    if buffer.allocated_at is None or buffer.reuses or buffer.allocated_at > moment.step:
        return False
    end = moment.ends[buffer.buffer]
    return end is None or end > moment.step
