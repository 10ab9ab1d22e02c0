"""Where the compiled call's time goes: each kernel's time shared among the operators that it computes.

A kernel's time is shared among its calls, a call's among its scheduler nodes, a scheduler node's among its FX nodes.
A library's calls are weighed by the time that each took in the step on the time line, where it can be told; other calls
are alike. The weight of a scheduler node is what a roofline gives it: bytes moved, or flops over the operations that
the machine does while it moves a byte, whichever is more; that of an FX node the size of its value and its operands.
Views cost nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field

from duckdb import DuckDBPyConnection

from fusionscope.storage import schema
from fusionscope.storage.conclusion_records import UNATTRIBUTED
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.call_times import library_calls
from fusionscope.storage.records import (
    DeviceFact,
    FusionGroup,
    Graph,
    GraphEdge,
    GraphNode,
    IrNode,
    KernelCall,
    KernelTiming,
    OpCost,
)

VIEWS = frozenset(
    "aten::" + name
    for name in [
        "view",
        "reshape",
        "_unsafe_view",
        "permute",
        "transpose",
        "t",
        "expand",
        "squeeze",
        "unsqueeze",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "alias",
        "detach",
        "as_strided",
        "unbind",
    ]
)
_BATCH_NORM = "aten::_native_batch_norm_legit"  # how AOTAutograd traces it: torch/_decomp/decompositions.py
CPU_BALANCE = 16.0  # flops a byte: a few hundred GFLOP/s against some tens of GB/s
Place = tuple[str | None, str, str]  # module path, operator, direction


@dataclass
class _Cost:
    us: float = 0.0
    estimated: bool = False
    kernels: set[str] = field(default_factory=set)
    node: GraphNode | None = None


def write(con: DuckDBPyConnection, run_id: str) -> None:
    """Put the operators' shares of the compiled call beside eager's, in place of an earlier attribution."""
    rows = [[run_id, *astuple(cost)] for cost in attribute(con, run_id)]
    with schema.transaction(con):
        con.execute("DELETE FROM op_costs WHERE run_id = ? AND variant = 'compiled'", [run_id])
        if rows:
            con.executemany(f"INSERT INTO op_costs VALUES ({', '.join('?' * len(rows[0]))})", rows)


def attribute(con: DuckDBPyConnection, run_id: str) -> list[OpCost]:
    """The compiled call's kernel times by module, operator and direction; they add up to all that was timed."""
    timed = [timing for timing in records_of(con, KernelTiming, run_id) if timing.variant == "compiled"]
    if not timed:
        return []
    work = _Work(con, run_id)
    found: dict[Place, _Cost] = defaultdict(_Cost)
    for timing in timed:
        for place, share, estimated, node in work.shares(timing):
            cost = found[place]
            cost.us += share * timing.total_us
            cost.estimated |= estimated
            cost.kernels |= {timing.kernel_id} if timing.kernel_id else set()
            cost.node = cost.node or node
    return [_row(place, cost) for place, cost in found.items()]


def _row(place: Place, cost: _Cost) -> OpCost:
    module_path, op, direction = place
    return OpCost(
        module_path=module_path,
        op=op,
        direction=direction,
        variant="compiled",
        file=cost.node.file if cost.node else None,
        line=cost.node.line if cost.node else None,
        compiled_us=cost.us,
        estimated=cost.estimated,
        kernel_ids=tuple(sorted(cost.kernels)),
    )


class _Work:
    """What each kernel of a run computes."""

    def __init__(self, con: DuckDBPyConnection, run_id: str) -> None:
        self._direction = {g.graph_id: g.direction or "forward" for g in records_of(con, Graph, run_id)}
        self._members = {(g.graph_id, g.group_id): g.members for g in records_of(con, FusionGroup, run_id)}
        self._ir = {(n.graph_id, n.ir_node): n for n in records_of(con, IrNode, run_id)}
        self._fx = {(n.graph_id, n.node): n for n in records_of(con, GraphNode, run_id)}
        self._lines: dict[tuple[str | None, int | None], set[str]] = defaultdict(set)
        for node in self._fx.values():
            if node.module_path:
                self._lines[node.file, node.line].add(node.module_path)
        self._operands: dict[tuple[str, str], list[str]] = defaultdict(list)
        for edge in records_of(con, GraphEdge, run_id):
            self._operands[edge.graph_id, edge.dst].append(edge.src)
        self._calls: dict[str, list[KernelCall]] = defaultdict(list)
        for call in records_of(con, KernelCall, run_id):
            self._calls[call.kernel_id].append(call)
        self._took = library_calls(con, run_id)
        facts = records_of(con, DeviceFact, run_id)
        self._balance = _balance(facts[0]) if facts else CPU_BALANCE

    def shares(self, timing: KernelTiming) -> Iterator[tuple[Place, float, bool, GraphNode | None]]:
        """Where a kernel's time belongs, in shares that add up to one."""
        nodes = self._weighed(timing.kernel_id or "")
        total = sum(weight for _, weight in nodes)
        if not total:
            yield self._unknown(timing), 1.0, False, None
            return
        places: dict[Place, tuple[float, GraphNode]] = {}
        for node, weight in nodes:
            place = self._place(node)
            places[place] = (places.get(place, (0.0, node))[0] + weight / total, node)
        estimated = len(places) > 1 and not self._told(timing.kernel_id or "")
        for place, (share, node) in places.items():
            yield place, share, estimated, node

    def _told(self, kernel_id: str) -> bool:
        """Whether the time of every call of a kernel is known."""
        return all((call.graph_id, call.position) in self._took for call in self._calls.get(kernel_id, ()))

    def _weighed(self, kernel_id: str) -> list[tuple[GraphNode, float]]:
        """FX nodes over all calls of a kernel, each with its weight."""
        told = self._told(kernel_id)
        found = []
        for call in self._calls.get(kernel_id, ()):
            pairs = self._of(call)
            whole = sum(weight for _, weight in pairs)
            scale = self._took[call.graph_id, call.position] / whole if told and whole else 1.0
            found += [(node, weight * scale) for node, weight in pairs]
        return found

    def _of(self, call: KernelCall) -> list[tuple[GraphNode, float]]:
        members = [
            self._ir[call.graph_id, member]
            for group in call.group_ids
            for member in self._members.get((call.graph_id, group), ())
            if (call.graph_id, member) in self._ir
        ]
        return [pair for member in members for pair in self._within(call.graph_id, member)]

    def _within(self, graph_id: str, ir: IrNode) -> Iterator[tuple[GraphNode, float]]:
        """The FX nodes of a scheduler node, sharing its weight by the size of their values."""
        nodes = [self._fx[graph_id, name] for name in ir.origins if (graph_id, name) in self._fx]
        working = [node for node in nodes if node.op != "placeholder" and node.original not in VIEWS] or nodes
        nodes = _of_the_call(working) if ir.kind in ("extern", "template") else working
        sizes = [self._touched(node) for node in nodes]
        weight = max((ir.bytes_read or 0) + (ir.bytes_written or 0), (ir.flops or 0) / self._balance, 1.0)
        yield from ((node, weight * size / sum(sizes)) for node, size in zip(nodes, sizes, strict=True))

    def _touched(self, node: GraphNode) -> float:
        operands = (self._fx.get((node.graph_id, name)) for name in self._operands[node.graph_id, node.node])
        return float((node.bytes or 0) + sum(operand.bytes or 0 for operand in operands if operand) or 1)

    def _place(self, node: GraphNode) -> Place:
        direction = "backward" if self._direction.get(node.graph_id) == "backward" else "forward"
        return node.module_path or self._module_by_line(node), _operator(node), direction

    def _module_by_line(self, node: GraphNode) -> str:
        """Of a node whose module a pass forgot the only one that its source line belongs to.

        Padding a product replaces it without its module: torch/_inductor/fx_passes/pad_mm.py.
        """
        modules = self._lines.get((node.file, node.line), set()) if node.file else set()
        return next(iter(modules)) if len(modules) == 1 else ""

    def _unknown(self, timing: KernelTiming) -> Place:
        """A kernel of none of the recorded graphs: an operator that ran between them keeps its name."""
        return None, timing.op or UNATTRIBUTED + timing.name, "forward"


def _operator(node: GraphNode) -> str:
    """What eager runs in a node's place, in the dispatcher's words."""
    if node.op == "placeholder":
        return "copy of an input"
    operator = node.original or "::".join(node.target.split(".")[:2])  # aten.select_scatter.default: a pass made it
    return "aten::native_batch_norm" if operator.startswith(_BATCH_NORM) else operator


def _of_the_call(nodes: Sequence[GraphNode]) -> list[GraphNode]:
    """Of what a library call computes the call itself: views of its operands are origins too, and cost nothing."""
    last = max(nodes, key=lambda node: node.position, default=None)
    return [last] if last else []


def _balance(facts: DeviceFact) -> float:
    """Operations that a GPU does while it moves a byte, by its maker's rates."""
    tflops, gbps = facts.bf16_tflops, facts.bandwidth_gbps
    return 1e3 * tflops / gbps if tflops and gbps else CPU_BALANCE
