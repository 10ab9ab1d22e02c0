"""Records of what happens to a graph before it is lowered, and beside it: symbols, mutations, passes, partition, hints.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A dynamic-shape symbol that Dynamo made for a size or a number, and what became of it."""

    compile_id: str
    symbol: str  # s77; u0 when its value is known only at run time
    source: str | None = None  # what it stands for, e.g. L['x'].size()[0]
    hint: str | None = None  # its value at compile time
    range: str | None = None  # that it may lie in when it is made
    specialised_to: str | None = None  # the one value that it was fixed to
    reason: str | None = None  # why it was fixed, in torch's words
    file: str | None = None  # where it was fixed, else where it was made
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SideEffect:
    """A mutation that Dynamo replays after the graph has run, because it reaches beyond the frame."""

    compile_id: str
    kind: str  # e.g. "Mutating object of type list"
    target: str | None = None  # source of the object, e.g. L['self'].history
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChoice:
    """A forward value of the joint graph: whether the backward finds it saved, or computes it again."""

    graph_id: str  # "0/0.joint"
    node: str
    saved: bool
    recomputed: bool  # an operation of the forward that the backward repeats
    banned: bool  # from being computed again
    is_input: bool  # of the forward; inputs count as saved when the backward reads them
    bytes: int | None = None
    budget: float | None = None  # the memory budget that applied; 1: as fast as can be
    reason: str | None = None  # why it is banned, in torch's words


@dataclass(frozen=True, slots=True, kw_only=True)
class PassChange:
    """What an FX pass, or a pattern of one, did to a graph, or came near to doing."""

    graph_id: str  # of the stage that the pass belongs to
    pass_name: str
    pattern: str | None = None  # None: the pass as a whole
    outcome: str  # applied, near_miss (nearly matched), vanished (asked for and gone)
    reason: str | None = None  # of what is not applied
    count: int = 1  # how often a pattern was applied, or nearly
    nodes_added: int | None = None  # by a pass as a whole
    nodes_removed: int | None = None  # by a pass as a whole; of a pattern: nodes matched
    duration_s: float | None = None  # of a pass as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfHint:
    """A hint about performance that torch logged while compiling."""

    compile_id: str | None = None
    graph_id: str | None = None
    node: str | None = None  # FX node being lowered
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CudagraphEvent:
    """A CUDA graph that was recorded, or a reason for which none is used."""

    compile_id: str | None = None
    graph_id: str | None = None
    event: str  # recorded, recorded_again, skipped
    reason: str | None = None  # of a skip, in torch's words
    file: str | None = None  # of the operation to blame
    line: int | None = None
    count: int = 1
    duration_s: float | None = None  # of a recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering:
    """What a pass did to the order of the schedule, or of the loops of a scheduler node.

    A pass over the schedule that ran and changed nothing has a record with two empty orders; one that did not run has
    none. Loops that were tried in another order and put back are no record.
    """

    graph_id: str
    pass_name: str  # torch's function, reorder_for_peak_memory, …; of loops: loop_ordering_after_fusion, …
    subject: str | None = None  # scheduler node whose loops changed; None: the schedule as a whole
    before: tuple[str, ...]  # groups by name; of loops their places and lengths: d0=64, d1=512
    after: tuple[str, ...]  # the same names; of loops as placed before
