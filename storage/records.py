"""One frozen record per fact. A record class is a table, a field is a column; `run_id` is added when a run is written.

Units: bytes are integers, `_us` microseconds, `_ms` milliseconds, `_s` seconds. None means "not recorded", never zero.
Ids (compile, graph, kernel, …) are unique within a run. Positions count from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusionscope.storage.conclusion_records import Finding as Finding
from fusionscope.storage.conclusion_records import OpCost as OpCost
from fusionscope.storage.conclusion_records import Summary as Summary
from fusionscope.storage.device_records import DeviceFact as DeviceFact
from fusionscope.storage.device_records import GemmChoice as GemmChoice
from fusionscope.storage.device_records import KernelCode as KernelCode
from fusionscope.storage.device_records import KernelConfig as KernelConfig
from fusionscope.storage.device_records import TimelineSpan as TimelineSpan
from fusionscope.storage.kernel_records import Kernel as Kernel
from fusionscope.storage.kernel_records import KernelCall as KernelCall
from fusionscope.storage.kernel_records import KernelTiming as KernelTiming
from fusionscope.storage.memory_records import Allocation as Allocation
from fusionscope.storage.memory_records import MemoryBudget as MemoryBudget
from fusionscope.storage.memory_records import MemoryResidual as MemoryResidual
from fusionscope.storage.memory_records import ReuseDecision as ReuseDecision
from fusionscope.storage.pass_records import CudagraphEvent as CudagraphEvent
from fusionscope.storage.pass_records import PartitionChoice as PartitionChoice
from fusionscope.storage.pass_records import PassChange as PassChange
from fusionscope.storage.pass_records import PerfHint as PerfHint
from fusionscope.storage.pass_records import Reordering as Reordering
from fusionscope.storage.pass_records import SideEffect as SideEffect
from fusionscope.storage.pass_records import Symbol as Symbol
from fusionscope.storage.review_records import Note as Note
from fusionscope.storage.review_records import SavedView as SavedView


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recorded run: one process that compiled something."""

    run_id: str
    name: str
    project: str | None = None
    tags: tuple[str, ...] = ()
    created_at: datetime  # UTC, without zone
    author: str | None = None
    status: str  # complete, partial, failed
    status_reason: str | None = None  # one sentence where status is not complete
    source: str = "live"  # live, imported
    torch_version: str | None = None
    triton_version: str | None = None
    python_version: str | None = None
    cuda_version: str | None = None
    host: str | None = None
    device_kind: str | None = None  # cpu, cuda, target
    device_name: str | None = None
    threads: int | None = None  # intra-op threads of torch
    mode: str | None = None  # torch.compile's mode
    dynamic: bool | None = None
    rank: int | None = None
    world_size: int | None = None
    group_id: str | None = None  # shared by the ranks of one job
    git_commit: str | None = None
    git_branch: str | None = None
    git_dirty: bool | None = None
    command: str | None = None
    cwd: str | None = None
    source_path: str | None = None  # the file given to `record` or `run`
    options: str | None = None  # JSON: what the run was recorded with
    fx_cache: str | None = None  # off, on
    kernel_cache: str | None = None  # cold, warm
    recorder_overhead_s: float | None = None  # time spent inside hooks and writing
    archived_at: datetime | None = None
    deleted_at: datetime | None = None
    fp32_matmul: str | None = None  # ieee, tf32: how a GPU multiplies float32, as set when the run ended


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStatus:
    """What one hook managed to record: the run's coverage statement, a row at a time."""

    hook: str  # or "rows of <table>", for a table that reached a limit
    state: str  # recorded, partial, unavailable, failed
    reason: str | None = None
    recorded: int = 0  # observations taken
    lost: int = 0  # observations that raised; rows beyond the limit
    self_s: float = 0.0  # time spent inside the hook


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    """A frame compilation; of several attempts the last one counts."""

    compile_id: str  # frame/recompilation, as torch numbers them; "@1" is added after a torch._dynamo.reset()
    epoch: int = 0  # how often the numbering restarted before this compile
    phase: str = "drive"  # drive: the user's own calls; measure: compiled again by measuring
    function: str | None = None
    file: str | None = None
    line: int | None = None
    outcome: str  # compiled, skipped, failed, limit
    reason: str | None = None
    attempts: int = 1
    backend: str | None = None  # that the captured graph was handed to
    resume_of: str | None = None  # name of the function that this frame resumes after a break
    recompile_of: str | None = None  # compile_id
    fx_key: str | None = None
    cache_state: str | None = None  # hit, miss, bypass
    decisions_from_run: str | None = None  # run_id, when the decisions were recorded elsewhere
    start_s: float | None = None  # since the run began
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilePhase:
    """A timed phase of a compilation, as torch's own chromium events bound it."""

    compile_id: str
    phase_id: int
    name: str
    parent: int | None = None  # phase_id of the enclosing phase
    thread: int | None = None
    start_s: float  # since the run began
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEvent:
    """A lookup in one of torch's compile caches."""

    compile_id: str
    cache: str  # fx_graph, aotautograd, …
    key: str | None = None
    state: str  # hit, miss, bypass
    reason: str | None = None
    saved_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """A distinct place where Dynamo stopped tracing."""

    compile_id: str
    file: str | None = None
    line: int | None = None
    kind: str  # Dynamo's own name for the break, e.g. "Failed to trace builtin operator"
    reason: str | None = None
    hint: str | None = None
    executions: int | None = None  # how often the program ran the site, measuring aside
    context: str | None = None  # what Dynamo was tracing and what it does about the break, a line each
    executions_reason: str | None = None  # why it is not known how often


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """A compilation that took place because the guards of a previous one failed."""

    compile_id: str
    previous_compile_id: str | None = None
    guard: str | None = None
    guard_value: str | None = None
    reason: str | None = None
    outcome: str = "done"  # done, refused (the limit was reached)
    count: int = 1
    compile_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """A condition that must hold for a compiled frame to be used again."""

    compile_id: str
    expression: str
    source: str | None = None  # what is guarded, e.g. L['x']
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A graph at one stage of the stack. Inductor's own graphs (stage post_grad) carry the decisions."""

    graph_id: str  # "0/0.forward", "0/0.backward", "0/0.inference" for Inductor; "0/0.dynamo", … for other stages
    compile_id: str | None = None  # None: of no compile, as TorchScript's
    stage: str  # dynamo, pre_grad, joint, forward, backward, inference, post_grad, torchscript
    direction: str | None = None  # forward, backward, inference (forward without gradients)
    fx_key: str | None = None
    code: str | None = None  # the graph as readable text
    output_code: str | None = None  # Inductor's wrapper and kernels; stage post_grad only
    position: int = 0  # order of compilation within the run
    reason: str | None = None  # why it could not be made (`code` is None then), or in what it does not hold


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """An FX node: of the graphs that Inductor compiles, AOTAutograd's forward and backward, and Dynamo's own."""

    graph_id: str
    node: str
    position: int
    op: str  # placeholder, call_function, get_attr, output, …
    target: str
    shape: tuple[str, ...] | None = None
    stride: tuple[str, ...] | None = None
    dtype: str | None = None
    bytes: int | None = None
    flops: int | None = None
    module_path: str | None = None  # e.g. layers.0.mlp
    file: str | None = None
    line: int | None = None
    source_text: str | None = None  # the text of that source line
    seq_nr: int | None = None  # shared by a forward op and its backward
    recomputed: bool | None = None  # a forward op computed again in the backward graph
    original: str | None = None  # operator of the program that it was decomposed from, e.g. aten::gelu


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEdge:
    """A value flowing between two FX nodes."""

    graph_id: str
    src: str
    dst: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RealizeDecision:
    """At lowering: a producer with several users was given a buffer, or inlined (computed again) in each user."""

    graph_id: str
    node: str  # FX node of the producer
    users: int
    reads: int | None = None  # buffers that the producer reads
    opcount: int | None = None  # operations in its body
    threshold: str | None = None  # the limits that applied
    realized: bool
    reason: str | None = None
    bytes: int | None = None  # size of the buffer, made or avoided
    copies: int | None = None  # scheduler nodes that compute it; more than one: computed again


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """A layout that Inductor changed, or a copy that it inserted to change one."""

    graph_id: str
    node: str | None = None  # FX node being lowered
    kind: str  # copy_input, channels_last, freeze_layout, …
    is_copy: bool
    from_stride: tuple[str, ...] | None = None
    to_stride: tuple[str, ...] | None = None
    bytes: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IrNode:
    """A scheduler node before fusion."""

    graph_id: str
    ir_node: str  # op0, op1, …
    kind: str  # pointwise, reduction, template, extern, nop
    target: str | None = None  # kernel that an extern node calls
    bytes_read: int | None = None
    bytes_written: int | None = None
    flops: int | None = None
    origins: tuple[str, ...] = ()  # FX nodes of the post_grad graph
    buffers: tuple[str, ...] = ()  # buffers that it writes
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IrEdge:
    """A buffer that one scheduler node writes and another reads."""

    graph_id: str
    src: str
    dst: str
    buffer: str
    bytes: int | None = None
    materialised: bool | None = None  # False: both ends share a group and the buffer was never allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionDecision:
    """A distinct pair of scheduler nodes (or groups) tested in one round."""

    graph_id: str
    round: int  # from 1
    a: str
    b: str
    direction: str  # vertical, horizontal, epilogue, prologue; of what was fused also mix_order, nested
    verdict: str  # fused, legal (could have been), refused, untested
    reason_code: str | None = None
    reason: str | None = None  # as torch logged it; None when it refused silently
    refused_by: str | None = None  # the predicate that said no
    score_template: int | None = None
    score_type: int | None = None
    score_memory: int | None = None  # bytes saved
    score_overlap: int | None = None
    score_proximity: int | None = None
    rank: int | None = None  # among the round's candidates, 0 is best
    order_taken: int | None = None  # fused as the n-th of the graph, from 0
    result: str | None = None  # the group that came of it
    shared_bytes: int | None = None
    ms_before: float | None = None  # benchmarked by Inductor: both apart, one after the other
    ms_after: float | None = None  # benchmarked by Inductor: fused; of a template's candidates the fastest
    times_tested: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionGroup:
    """A group of scheduler nodes after the last round, in final schedule order."""

    graph_id: str
    group_id: str  # the fused node's name; a single node's own name
    members: tuple[str, ...]
    position: int
    # single (one node); fused (pairs, one after the other); mix_order (its reductions run in different orders);
    # nested (one reduction feeds another over the same elements); foreach (a torch._foreach_* operation); combo
    # (independent groups in one kernel: config.combo_kernels). None: recorded before kinds were.
    kind: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """A value that two graphs of one compilation hold, by the name that each gives it.

    From Dynamo's graph it leads to every operation that AOTAutograd traced its operation into.
    """

    graph_a: str
    node_a: str  # in the earlier stage; for a value that the backward needs, in the forward
    graph_b: str
    node_b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A buffer of the emitted wrapper. Steps index the wrapper's lines."""

    graph_id: str
    buffer: str
    category: str  # input, weight, constant, intermediate, output, saved, gradient, optimizer, workspace
    bytes: int | None = None
    shape: tuple[str, ...] | None = None
    dtype: str | None = None
    allocated_at: int | None = None  # step; None for inputs, which exist before the call
    last_use: int | None = None
    freed_at: int | None = None  # step; None when it outlives the call
    reuses: str | None = None  # buffer whose memory it took over
    reuse_kind: str | None = None  # in_place, pool
    ir_node: str | None = None  # scheduler node that writes it first
    kernel_id: str | None = None  # kernel that writes it first
    reason: str | None = None  # why its size is not known, or nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """Live bytes after one step of a memory timeline."""

    graph_id: str
    basis: str  # estimate, plan, measured
    variant: str  # compiled, eager
    step: int
    time_us: float | None = None
    live_bytes: int  # allocated above the entry of the call
    base_bytes: int | None = None  # alive before the call: inputs and weights
    buffer: str | None = None
    delta_bytes: int | None = None
    label: str | None = None  # what happened: the wrapper line or the operator


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrder:
    """A schedule order that Inductor weighed, with the peak it estimated."""

    graph_id: str
    method: str  # as_given, lpmf, bfs, dfs, …, chosen
    peak_bytes: int
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A measured quantity of one variant of the model."""

    variant: str  # eager, compiled; another of `--variants` by its name
    metric: str  # latency_us, host_us, device_us, kernels, peak_bytes, first_call_s, max_abs_error, …
    median: float
    p10: float | None = None
    p90: float | None = None
    samples: int = 1
    unit: str  # us, s, bytes, count
    discarded: int = 0  # samples thrown away
    reason: str | None = None  # why they were thrown away
    method: str  # how it was measured, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A counter that torch keeps while compiling."""

    graph_id: str | None = None
    name: str
    value: int


TABLES: dict[str, type[Any]] = {
    "runs": Run,
    "hook_status": HookStatus,
    "compiles": Compile,
    "compile_phases": CompilePhase,
    "cache_events": CacheEvent,
    "graph_breaks": GraphBreak,
    "recompiles": Recompile,
    "guards": Guard,
    "graphs": Graph,
    "graph_nodes": GraphNode,
    "graph_edges": GraphEdge,
    "realize_decisions": RealizeDecision,
    "layout_changes": LayoutChange,
    "ir_nodes": IrNode,
    "ir_edges": IrEdge,
    "fusion_decisions": FusionDecision,
    "fusion_groups": FusionGroup,
    "kernels": Kernel,
    "kernel_calls": KernelCall,
    "kernel_timings": KernelTiming,
    "buffers": Buffer,
    "memory_points": MemoryPoint,
    "memory_orders": MemoryOrder,
    "measurements": Measurement,
    "counters": Counter,
    "symbols": Symbol,
    "side_effects": SideEffect,
    "partition_choices": PartitionChoice,
    "pass_changes": PassChange,
    "perf_hints": PerfHint,
    "cudagraph_events": CudagraphEvent,
    "device_facts": DeviceFact,
    "kernel_configs": KernelConfig,
    "kernel_code": KernelCode,
    "node_links": NodeLink,
    "reorderings": Reordering,
    "gemm_choices": GemmChoice,
    "timeline": TimelineSpan,
    "allocations": Allocation,
    "memory_residuals": MemoryResidual,
    "memory_budgets": MemoryBudget,
    "reuse_decisions": ReuseDecision,
    "findings": Finding,
    "op_costs": OpCost,
    "notes": Note,
    "summaries": Summary,
}

LIBRARY_TABLES: dict[str, type[Any]] = {"saved_views": SavedView}  # of no run

TABLE_OF: dict[type[Any], str] = {record: table for table, record in (TABLES | LIBRARY_TABLES).items()}
