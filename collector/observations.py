"""What hooks see, raw: small plain values in the order they happened. The ledger gives them meaning later."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LIBRARY_CALLS = (  # lines of the wrapper that call a library (torch/_inductor/codegen/wrapper.py)
    "ExternKernelOutLine",
    "ExternKernelAllocLine",
    "ExternKernelMultiOutLine",
    "ScatterFallbackLine",
    "IndexPutFallbackLine",
)
COMPILE_ENDS = ("compilation_metrics", "bwd_compilation_metrics")  # trace events that a compile ends with


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event of torch's structured trace."""

    kind: str  # compilation_metrics, chromium_event, artifact, …
    name: str | None  # of an artifact
    compile_id: str | None  # as the library names it
    attempt: int | None
    data: Any  # the event's own metadata
    payload: str | None
    graph_id: str | None  # Inductor graph that the thread worked on
    epoch: int
    phase: str
    at_s: float  # time.time()
    thread: int


@dataclass(frozen=True, slots=True)
class BackendCalled:
    """Dynamo handed a captured graph to a backend."""

    compile_id: str
    backend: str


@dataclass(frozen=True, slots=True)
class GraphCalled:
    """The program ran a compiled forward graph so often."""

    compile_id: str
    calls: int


@dataclass(frozen=True, slots=True)
class NodeTraced:
    """AOTAutograd traced a node of Dynamo's graph into this one, with others where it was decomposed."""

    graph_id: str
    node: str
    dynamo_node: str


@dataclass(frozen=True, slots=True)
class RoundBegan:
    """The scheduler begins a fusion round over so many nodes."""

    graph_id: str
    nodes: int
    reorder: bool


@dataclass(frozen=True, slots=True)
class PairEntered:
    """Scheduler.can_fuse was asked about a pair; answers to it may be asked inside (mix-order, foreach)."""

    graph_id: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class PairAnswered:
    """Scheduler.can_fuse answered."""

    graph_id: str
    a: str
    b: str
    fusible: bool
    direction: str


@dataclass(frozen=True, slots=True)
class ReasonLogged:
    """torch logged why a pair is not fused (WhyNoFuse)."""

    graph_id: str
    a: str
    b: str
    reason: str


@dataclass(frozen=True, slots=True)
class PredicateAnswered:
    """One of the predicates inside can_fuse answered; a refusal without a logged reason is known by it."""

    graph_id: str
    predicate: str
    answer: bool
    shared_bytes: int | None


@dataclass(frozen=True, slots=True)
class PairScored:
    """The parts of the score that ranked a legal pair."""

    graph_id: str
    a: str
    b: str
    template: int | None
    type: int | None
    memory: int | None
    overlap: int | None
    proximity: int | None


@dataclass(frozen=True, slots=True)
class CandidatesRanked:
    """The legal pairs of a round, best first."""

    graph_id: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FusionBenchmarked:
    """A legal pair was benchmarked, or turned down without (no times then). Times in milliseconds.

    With a template: its own best time, that of the other node where it was benchmarked, and the fused kernel's with
    each candidate. Else there are three kernels: the first, the second and the fused one.
    """

    graph_id: str
    a: str
    b: str
    template_ms: float | None
    other_ms: float | None
    kernels_ms: tuple[float, ...]
    fuse: bool


@dataclass(frozen=True, slots=True)
class FusionBegan:
    """A pair is being fused; some kinds of groups ask can_fuse again to find out which part takes the new node in."""

    graph_id: str


@dataclass(frozen=True, slots=True)
class PairFused:
    """Two nodes became one group."""

    graph_id: str
    a: str
    b: str
    result: str
    became: str | None  # mix_order, nested: where neither was such a group before


@dataclass(frozen=True, slots=True)
class LoopsReordered:
    """The loops of a scheduler node were reordered; a loop is named by its place before and its length: d0=64."""

    graph_id: str
    node: str
    pass_name: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoopsRestored:
    """The loops of a scheduler node were put back to what they were when can_fuse was asked."""

    graph_id: str
    node: str


@dataclass(frozen=True, slots=True)
class CycleFound:
    """A legal pair was dropped, because fusing it would make a cycle."""

    graph_id: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class NodeAccesses:
    """Bytes that a scheduler node touches of each buffer; None where that depends on data."""

    graph_id: str
    ir_node: str
    read: dict[str, int | None]
    written: dict[str, int | None]


@dataclass(frozen=True, slots=True)
class ScheduledBuffer:
    """A buffer that the scheduler knows, whether or not it is ever allocated."""

    graph_id: str
    buffer: str
    bytes: int | None
    shape: tuple[str, ...] | None
    dtype: str | None
    ir_node: str | None  # that writes it
    part_of: str | None  # the tuple that a library kernel returned, for a MultiOutput
    users: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input of an Inductor graph."""

    graph_id: str
    buffer: str
    bytes: int | None
    shape: tuple[str, ...] | None
    dtype: str | None
    static: bool  # parameters and buffers, whose address stays


@dataclass(frozen=True, slots=True)
class GraphConstant:
    """A tensor that the compiled graph holds itself, such as a frozen or packed weight."""

    graph_id: str
    buffer: str
    bytes: int | None  # None: its layout does not say (a weight packed by oneDNN)
    shape: tuple[str, ...] | None
    dtype: str | None


@dataclass(frozen=True, slots=True)
class GraphOutputs:
    """The buffers that a graph returns, and how many of them the user sees (the rest is saved for backward)."""

    graph_id: str
    names: tuple[str, ...]
    user_visible: tuple[str, ...] | None
    nodes: tuple[str, ...] = ()  # the FX nodes that they are, by the names of the backward where no pass changed one


@dataclass(frozen=True, slots=True)
class LineSeen:
    """One line of the emitted wrapper, as an object before it becomes text."""

    kind: str  # the class: AllocateLine, ReuseLine, FreeLine, KernelCallLine, …
    buffer: str | None = None
    bytes: int | None = None
    reused_as: str | None = None
    reused_bytes: int | None = None
    is_reused: bool = False
    kernel: str | None = None
    args: tuple[str, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True)
class WrapperPlanned:
    """The wrapper's lines after memory planning, and the in-place reuses that were there before it."""

    graph_id: str
    lines: tuple[LineSeen, ...]
    in_place: tuple[str, ...] = field(default=())  # buffers that took over an input of their own kernel


@dataclass(frozen=True, slots=True)
class KernelWritten:
    """A call of a kernel was generated for these scheduler nodes."""

    graph_id: str
    kernel: str
    ir_nodes: tuple[str, ...]
    extern: bool


@dataclass(frozen=True, slots=True)
class KernelDefined:
    """The source of a generated kernel."""

    graph_id: str
    kernel: str
    source: str
    gpu: bool


@dataclass(frozen=True, slots=True)
class RealizeAsked:
    """StorageBox.should_realize_on_reuse answered for a producer with several users."""

    graph_id: str
    node: str
    users: int
    realized: bool
    reads: int
    opcount: int
    ops: tuple[str, ...]
    cpu: bool
    most_reads: int
    most_ops: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for an operation: a library kernel, or a template in one configuration."""

    name: str
    kind: str  # library, triton, cpp, subgraph, other
    config: str | None


@dataclass(frozen=True, slots=True)
class CandidatesListed:
    """Inductor listed the candidates for an operation; a contest follows where there are several."""

    graph_id: str
    contest: int  # within the process
    node: str | None  # FX node being lowered
    op: str | None
    shapes: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class CandidateTimed:
    """A candidate was benchmarked, or its time remembered."""

    graph_id: str
    contest: int
    position: int  # in the list
    op: str  # as Inductor names the contest
    ms: float  # infinite where it could not run


@dataclass(frozen=True, slots=True)
class CandidateFailed:
    """A candidate could not be compiled or run."""

    graph_id: str
    contest: int
    position: int
    error: str


@dataclass(frozen=True, slots=True)
class TemplateTaken:
    """The scheduler ended a contest with this template."""

    graph_id: str
    contest: int
    position: int


@dataclass(frozen=True, slots=True)
class KernelName:
    """A Triton kernel by its name in the wrapper of a graph."""

    graph_id: str
    kernel: str


@dataclass(frozen=True, slots=True)
class LauncherMade:
    """A Triton kernel was compiled in one configuration and can be launched."""

    name: KernelName
    config: str
    num_warps: int
    num_stages: int
    registers: int | None
    n_spills: int | None
    shared_bytes: int | None
    static: bool
    architecture: str  # sm_90, gfx942
    artifacts: Path  # folder of what the kernel became, stage by stage
    grid: Any | None  # GridExpr of triton_heuristics.py: blocks by the numbers that a call passes
    parameters: tuple[str, ...]  # what a call passes, in order
    constants: dict[str, int]  # what is fixed in the kernel
    origin: str  # as in kernel_configs


@dataclass(frozen=True, slots=True)
class LauncherTimed:
    """A configuration was benchmarked."""

    name: KernelName
    config: str
    ms: float  # infinite where it was passed over, since its registers spill


@dataclass(frozen=True, slots=True)
class LauncherChosen:
    """The kernel runs in this configuration from now on."""

    name: KernelName
    config: str


LauncherSeen = LauncherMade | LauncherTimed | LauncherChosen


@dataclass(frozen=True, slots=True)
class RowsLeftOut:
    """Rows of a table that a fold did not make, because of a limit of its own."""

    table: str
    rows: int
    limit: str  # in words
