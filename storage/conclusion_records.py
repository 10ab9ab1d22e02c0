"""Records of what is concluded from other records: findings, and where the time of a call went.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one rule concludes from the recorded facts of a run; written when the run is imported."""

    finding_id: str  # the rule's code: a rule concludes once a run
    status: str  # failed, passed, not_applicable
    severity: str  # problem, note (informative); of a rule that did not fail the one it would have
    code: str
    title: str
    explanation: str  # one sentence with numbers; of what is not applicable the reason
    evidence: tuple[str, ...] = ()  # the facts behind it, most weighty first
    action: str | None = None  # what to change or try
    link: str | None = None  # screen that shows it, e.g. "kernels?kernel=0/0.forward/triton_poi_0"


UNATTRIBUTED = "unattributed "  # begins the operator of a row whose kernel is known by its name alone
UNSTEADY = "latency is not recorded: every sample had a compilation inside"  # what the hook "measure" says of a variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The headline of a run, worked out once when it is imported. Counts leave out what only measuring compiled."""

    compiles: int
    breaks: int | None = None  # None where torch's trace, which tells of them, was not recorded
    recompiles: int | None = None
    graphs: int  # that reached Inductor
    kernel_calls: int | None = None  # calls in the emitted wrappers; None when no graph reached Inductor
    refusals: int  # pairs that were tested and not fused
    spill_bytes: int | None = None  # of every Triton kernel in its fullest configuration; None where not known of all
    eager_us: float | None = None  # latency
    compiled_us: float | None = None
    eager_kernels: float | None = None  # kernels per call of the model
    compiled_kernels: float | None = None
    eager_peak_bytes: float | None = None
    compiled_peak_bytes: float | None = None
    plan_peak_bytes: int | None = None  # the largest of the plans
    within_noise: bool | None = None  # the 10–90 % intervals of both latencies overlap; None where one has none
    problems: int  # findings that failed and are no mere note
    worst: str | None = None  # title of the first of them
    facts: int  # rows that were recorded: the run's share of the library


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCost:
    """What an operator of a module takes of a call of the model: measured in eager, attributed in compiled code."""

    module_path: str | None = None  # e.g. layers.0.mlp; "" for the model's own forward; None outside of it or unknown
    op: str  # operator as eager calls it, e.g. aten::addmm; UNATTRIBUTED and a kernel's name where it is unknown
    direction: str  # forward, backward
    variant: str  # eager, compiled
    file: str | None = None  # of the first node that computes it
    line: int | None = None
    eager_us: float | None = None  # per call of the model, of variant eager
    compiled_us: float | None = None  # per call of the model, of variant compiled
    estimated: bool = False  # a kernel's time was shared among several operators by the bytes and flops of each
    eager_kernels: float | None = None  # per call of the model
    kernel_ids: tuple[str, ...] = ()  # kernels that compute it, of variant compiled
