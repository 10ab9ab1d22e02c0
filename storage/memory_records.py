"""Records of memory as it was measured, of what keeps plan and measurement apart, and of what could be lower.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A block of memory of one measured step, or one that was there before it."""

    variant: str  # compiled, eager; of an imported snapshot: snapshot
    phase: str  # before, forward, backward, optimizer
    start_us: float | None = None  # since the step began; None: there before
    end_us: float | None = None  # None: outlives the step
    first_event: int | None = None  # of the step's allocations and frees in order, as memory_points counts them
    last_event: int | None = None  # at which it is freed
    bytes: int  # as requested
    address: int | None = None
    category: str  # as of buffers
    graph_id: str | None = None  # whose wrapper allocated it
    buffer: str | None = None  # of that graph
    label: str | None = None  # the wrapper line, the operator, or the name of a parameter
    file: str | None = None
    line: int | None = None
    source_text: str | None = None  # the text of that line


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResidual:
    """A named part of the difference between a measured peak and the planned one."""

    variant: str
    graph_id: str  # empty: of the whole step
    name: str  # plan, workspace, rounding, …, unexplained; they add up to the measured peak
    bytes: int
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """A memory budget of the partitioner, tried on a joint graph: what it would save and compute again."""

    graph_id: str  # "0/0.joint"
    budget: float  # torch._functorch.config.activation_memory_budget
    saved_bytes: int  # forward values, without inputs
    saved_values: int
    recomputed_ops: int
    recomputed_flops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseDecision:
    """A chance to put a buffer into memory that is there already."""

    graph_id: str
    buffer: str  # that needs memory
    candidate: str  # whose memory could serve
    kind: str  # in_place, pool
    verdict: str  # taken, refused
    reason: str | None = None  # of a refusal
    bytes: int | None = None
