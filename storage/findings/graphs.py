"""Rules about what became of the graph: copies, lost kernels, producers computed again, refusals, and the peak."""

from __future__ import annotations

from collections import defaultdict

from fusionscope.storage.findings._rule import (
    NOTE,
    PROBLEM,
    Facts,
    Failed,
    NotApplicable,
    Passed,
    Rule,
    Verdict,
    at,
    several,
)
from fusionscope.storage.queries.fusion_refusals import Refusal, worklist
from fusionscope.storage.reasons import REASONS
from fusionscope.storage.records import (
    Buffer,
    FusionDecision,
    Graph,
    GraphEdge,
    GraphNode,
    IrNode,
    KernelTiming,
    LayoutChange,
    PassChange,
    RealizeDecision,
)
from fusionscope.storage.text import bytes_

SMALL = 1 << 16  # bytes that are not worth a line
LARGE = 1 << 20  # bytes of a value that is costly to compute twice
GROWN = 1.1  # compiled peak over eager peak
# Functions of many instructions; Inductor realizes only some of them on a CPU (torch/_inductor/ir.py, heavy_ops).
HEAVY = frozenset(
    [
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "pow"),
        *("erf", "erfc", "erfinv", "gelu", "sigmoid", "log_sigmoid_forward", "silu", "mish", "softplus"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "lgamma", "digamma"),
    ]
)
_ATTENTION = "scaled_dot_product"


def layout_copies(facts: Facts) -> Verdict:
    """Copies made to change a layout, weighed against the traffic that fusion saved."""
    if not facts.of(IrNode):
        return NotApplicable("no schedule was recorded")
    copies = sorted((c for c in facts.of(LayoutChange) if c.is_copy), key=lambda c: -(c.bytes or 0))
    cost = 2 * sum(c.bytes or 0 for c in copies)  # read and written
    saved = sum(d.score_memory or 0 for d in facts.of(FusionDecision) if d.verdict == "fused")
    if not copies:
        return Passed("No copy was made to change a layout.")
    if cost <= max(saved, SMALL):
        return Passed(f"Copies for layout move {bytes_(cost)}, fusion saves {bytes_(saved)}.")
    return Failed(
        f"Copies for layout move {bytes_(cost)}, more than the {bytes_(saved)} that fusion saves.",
        tuple(f"{c.graph_id} {c.node}: {bytes_(c.bytes)}, strides {_change(c)}" for c in copies),
    )


def _change(copy: LayoutChange) -> str:
    return f"{_list(copy.from_stride)} → {_list(copy.to_stride)}"


def _list(numbers: tuple[str, ...] | None) -> str:
    return f"({', '.join(numbers)})" if numbers else "unknown"


def lost_kernel(facts: Facts) -> Verdict:
    """Attention that eager runs as one kernel and compiled code does not, or runs as a slower one."""
    if not facts.of(IrNode):
        return NotApplicable("no schedule was recorded")
    gone = [change for change in facts.of(PassChange) if change.outcome == "vanished"]
    masks = tuple(_masks(facts))
    if gone:
        lost = (f"{c.graph_id}: {several(c.count, c.pattern or c.pass_name)} vanished: {c.reason}" for c in gone)
        return Failed("Attention is no fused kernel any more.", (*lost, *masks), link="compile")
    if masks:
        return Failed("Attention reads a mask from memory where eager asks for a causal kernel.", masks)
    return Passed("Every fused kernel that the program asked for is there.")


def _masks(facts: Facts) -> list[str]:
    """Attention calls of Inductor's graphs that take a fourth tensor, a bias, where eager ran the flash kernel.

    Flash attention takes no bias (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp): eager had a causal flag.
    """
    eager = [timing.name for timing in facts.of(KernelTiming) if timing.variant == "eager"]
    if not any("flash" in name and _forward(name) for name in eager):
        return []
    reads: dict[tuple[str, str], list[str]] = defaultdict(list)
    for edge in facts.of(GraphEdge):
        reads[edge.graph_id, edge.dst].append(edge.src)
    inductors = {graph.graph_id for graph in facts.of(Graph) if graph.stage == "post_grad"}
    nodes = {(n.graph_id, n.node): n for n in facts.of(GraphNode) if n.graph_id in inductors}
    calls = [n for n in nodes.values() if _ATTENTION in n.target and _forward(n.target)]
    masked = [(n, reads[n.graph_id, n.node][3]) for n in calls if len(reads[n.graph_id, n.node]) > 3]
    return [_mask(call, nodes[call.graph_id, mask]) for call, mask in masked]


def _mask(call: GraphNode, mask: GraphNode) -> str:
    return f"{call.graph_id} {call.node} at {at(call.file, call.line)}: mask {mask.node}, shape {_list(mask.shape)}"


def _forward(name: str) -> bool:
    return "backward" not in name and "bwd" not in name


def recomputed_producer(facts: Facts) -> Verdict:
    """A costly producer that was inlined into several consumers and is computed in each."""
    asked = facts.of(RealizeDecision)
    if not asked:
        return NotApplicable("no producer had several users")
    targets = {(n.graph_id, n.node): n.target for n in facts.of(GraphNode)}
    inlined = [d for d in asked if not d.realized and (d.copies or 0) > 1]
    again = [d for d in inlined if _heavy(targets.get((d.graph_id, d.node), d.node))]
    if not again:
        return Passed(f"No costly producer is computed twice; {several(len(asked), 'producer')} had several users.")
    again.sort(key=lambda d: -(d.bytes or 0) * (d.copies or 0))
    slow = facts.run.device_kind == "cpu" and any(
        (d.bytes or 0) >= LARGE for d in again
    )  # GPUs have arithmetic to spare
    return Failed(
        f"{several(len(again), 'costly producer')} computed again in each consumer.",
        tuple(f"{d.graph_id} {d.node} ({bytes_(d.bytes)}): {d.reason}" for d in again),
        PROBLEM if slow else NOTE,
    )


def _heavy(target: str) -> bool:
    """Whether an FX target such as aten.erf.default is a function of many instructions."""
    return not HEAVY.isdisjoint(target.split("."))


def refused_fusions(facts: Facts) -> Verdict:
    """Pairs that share data and ended apart since they were refused: bytes that went through memory."""
    pairs = facts.of(FusionDecision)
    if not pairs:
        return NotApplicable("no pair of scheduler nodes was tested")
    fused = sum(d.score_memory or 0 for d in pairs if d.verdict == "fused")
    graphs = [graph.graph_id for graph in facts.of(Graph) if graph.stage == "post_grad"]
    rows = [row for graph_id in graphs for row in facts.ask(worklist, graph_id) if row.verdict == "refused"]
    total = sum(row.bytes or 0 for row in rows)
    if total <= max(fused, SMALL):
        return Passed(f"Refused pairs pass {bytes_(total)} through memory, fusion saves {bytes_(fused)}.")
    rows.sort(key=lambda row: -(row.bytes or 0))
    return Failed(
        f"Refused pairs pass {bytes_(total)} through memory, more than the {bytes_(fused)} that fusion saves.",
        tuple(f"{at(row.file, row.line)}: {bytes_(row.bytes)}. {_refused(row)}" for row in rows if row.bytes),
        NOTE,
    )


def _refused(row: Refusal) -> str:
    known = REASONS.get(row.reason_code or "")
    return known.sentence if known else row.reason or f"Refused by {row.refused_by} without a reason."


def memory_grown(facts: Facts) -> Verdict:
    """The compiled call needs more memory than the eager one."""
    eager, compiled = facts.measured("peak_bytes", "eager"), facts.measured("peak_bytes", "compiled")
    if eager is None or compiled is None:
        return NotApplicable("the peaks of eager and compiled were not both measured")
    if compiled.median - eager.median < SMALL or compiled.median < GROWN * eager.median:
        return Passed(f"The peak is {bytes_(compiled.median)} compiled, {bytes_(eager.median)} eager.")
    largest = sorted((b for b in facts.of(Buffer) if b.allocated_at is not None), key=lambda b: -(b.bytes or 0))
    return Failed(
        f"The peak grew from {bytes_(eager.median)} to {bytes_(compiled.median)}.",
        tuple(
            f"{b.graph_id} {b.buffer}: {bytes_(b.bytes)}, steps {b.allocated_at} to {b.last_use}" for b in largest[:5]
        ),
    )


RULES = (
    Rule(
        "layout_copies",
        "Layout copies cost more than fusion saves",
        "compile",
        "Give inputs and weights the layout that the kernel wants, e.g. .to(memory_format=torch.channels_last).",
        layout_copies,
    ),
    Rule(
        "lost_kernel",
        "A good kernel was lost",
        "kernels",
        "Ask for it with is_causal=True and no mask, or keep attention out with torch.compiler.disable.",
        lost_kernel,
    ),
    Rule(
        "recomputed_producer",
        "A costly producer is computed again",
        "fusion",
        "Compile with options={'realize_reads_threshold': 1}, or split the model after it, and measure.",
        recomputed_producer,
        trial=("--option", "realize_reads_threshold=1"),
    ),
    Rule(
        "refused_fusions",
        "Fusions were refused",
        "fusion",
        "Compute both sides over one shape and in one order, without a copy between; the Fusion page tells more.",
        refused_fusions,
    ),
    Rule(
        "memory_grown",
        "Compiling made the peak higher",
        "memory",
        "Fuse less: options={'max_fusion_size': 2}, or torch.compiler.disable around what the Memory page names.",
        memory_grown,
        trial=("--option", "max_fusion_size=2"),
    ),
)
