"""Everything that was seen of one Inductor graph, indexed by name, for the folds that need it."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, TypeVar

from fusionscope.collector.observations import (
    LIBRARY_CALLS,
    GraphConstant,
    GraphInput,
    GraphOutputs,
    KernelDefined,
    KernelWritten,
    LineSeen,
    NodeAccesses,
    RealizeAsked,
    ScheduledBuffer,
    WrapperPlanned,
)
from fusionscope.storage.records import FusionGroup, IrEdge, IrNode, LayoutChange

T = TypeVar("T")


def root_of(graph_id: str) -> str:
    """The graph whose wrapper holds this one: itself, or of a subgraph the graph around it."""
    return ".".join(graph_id.split(".")[:2])


CALLS = ("KernelCallLine", *LIBRARY_CALLS)
TEXT_CALL = re.compile(r"(?P<kernel>(?:aten|torch\.ops|extern_kernels)\.[\w.]+)\((?P<arguments>.*)")
BUFFER = re.compile(r"\b(?:buf|arg|primals_|tangents_)\d+(?:_\d+)?\b")


class Block(NamedTuple):
    """The memory that a forward returns a value in."""

    buffer: str
    bytes: int | None
    given_as: str | None = None  # weight or input, of memory that the forward was given itself


class GraphFacts:
    """A graph's observations by kind and name.

    `shared` are the kernels of its wrapper, `returned` of a backward what its forward returned.
    """

    def __init__(
        self,
        graph_id: str,
        observations: Iterable[object],
        shared: Mapping[str, KernelDefined] | None = None,
        returned: Sequence[tuple[str, Block]] = (),
    ) -> None:
        self.graph_id = graph_id
        seen: dict[type, list[object]] = defaultdict(list)
        for observation in observations:
            seen[type(observation)].append(observation)
        copies = {(change.node, change.bytes) for change in _only(seen, LayoutChange) if change.is_copy}
        self.nodes: dict[str, IrNode] = {n.ir_node: _own_work(n, copies) for n in _only(seen, IrNode)}
        self.accesses: dict[str, NodeAccesses] = {a.ir_node: a for a in _only(seen, NodeAccesses)}
        self.edges = _only(seen, IrEdge)
        self.groups = _only(seen, FusionGroup)
        self.buffers: dict[str, ScheduledBuffer] = {b.buffer: b for b in _only(seen, ScheduledBuffer)}
        self.inputs: dict[str, GraphInput] = {g.buffer: g for g in _only(seen, GraphInput)}
        self._saved = _saved(returned, self.inputs)
        self.constants = _only(seen, GraphConstant)
        own = {k.kernel: k for k in _only(seen, KernelDefined)}
        self.sources: dict[str, KernelDefined] = {**(shared or {}), **own}  # a wrapper defines a text once
        self.written = _only(seen, KernelWritten)
        self.realized = _only(seen, RealizeAsked)
        plans = _only(seen, WrapperPlanned)  # a partitioned graph has one wrapper per partition
        self.lines: tuple[LineSeen, ...] = tuple(_as_call(line) for plan in plans for line in plan.lines)
        self.in_place = frozenset(name for plan in plans for name in plan.in_place)
        self._outputs = next(iter(_only(seen, GraphOutputs)), None)

    @property
    def function(self) -> str:
        """The function in the output code that runs the graph: a subgraph (cond, while_loop) has one of its own."""
        return "call" if root_of(self.graph_id) == self.graph_id else self.graph_id.rpartition(".")[2]

    @property
    def direction(self) -> str:
        """forward, backward or inference, as the graph's name says."""
        return self.graph_id.split(".", 1)[-1].split("#")[0].split(".")[0]

    @cached_property
    def group_of(self) -> dict[str, str]:
        """Scheduler node → its final group."""
        return {member: group.group_id for group in self.groups for member in group.members}

    @cached_property
    def _kernel_of(self) -> dict[str, str]:
        return {node: kernel.kernel for kernel in self.written for node in kernel.ir_nodes}

    @cached_property
    def _items_of(self) -> dict[str, list[ScheduledBuffer]]:
        items: dict[str, list[ScheduledBuffer]] = defaultdict(list)
        for buffer in self.buffers.values():
            items[buffer.part_of or ""].append(buffer)
        return items

    def kernel_id(self, name: str) -> str:
        """A kernel's name within the run."""
        return f"{self.graph_id}/{name}"

    def kernel_of(self, ir_node: str | None) -> str | None:
        """The kernel that computes a scheduler node."""
        name = self._kernel_of.get(ir_node or "")
        return self.kernel_id(name) if name else None

    def nodes_by_call(self) -> dict[str, deque[tuple[str, ...]]]:
        """Kernel name → the scheduler nodes of its first, second, … call."""
        calls: dict[str, deque[tuple[str, ...]]] = defaultdict(deque)
        for kernel in self.written:
            calls[kernel.kernel].append(kernel.ir_nodes)
        return calls

    def allocated_by(self, line: LineSeen) -> list[ScheduledBuffer]:
        """Buffers that a library call returns in memory of its own: its result, or the items of its tuple."""
        if line.kind != "ExternKernelAllocLine" or line.buffer is None:
            return []
        items = self._items_of.get(line.buffer)
        whole = self.buffers.get(line.buffer)
        return items or ([whole] if whole and whole.shape is not None else [])

    def unnamed_items(self, whole: str) -> list[str]:
        """Items of a tuple that the wrapper never takes out of it: they end with the tuple."""
        return [item.buffer for item in self._items_of.get(whole, ()) if item.buffer not in self._taken_out]

    @cached_property
    def _taken_out(self) -> frozenset[str]:
        return frozenset(line.buffer for line in self.lines if line.kind == "MultiOutputLine" and line.buffer)

    def writer_of(self, buffer: str | None) -> tuple[str, ...]:
        """The scheduler node that writes a buffer: some library calls are not announced with their node."""
        known = self.buffers.get(buffer or "")
        return (known.ir_node,) if known and known.ir_node else ()

    @property
    def returned(self) -> list[tuple[str, Block]]:
        """FX nodes of the tensors that the graph returns, with the memory of each; several may be views of one."""
        if self._outputs is None:
            return []
        made = {name: Block(name, buffer.bytes) for name, buffer in self.buffers.items()}
        given = {name: Block(name, i.bytes, self.input_category(i)) for name, i in self.inputs.items()}
        blocks, named = made | given, zip(self._outputs.nodes, self._outputs.names, strict=False)
        return [(node, blocks[name]) for node, name in named if name in blocks]

    def block_of(self, given: str) -> str:
        """The memory that an input lies in: the buffer in which the forward returned it, else its own."""
        return self._saved[given].buffer if given in self._saved else given

    @cached_property
    def lying_in(self) -> dict[str, list[str]]:
        """Memory → the inputs that lie in it; several saved values may be views of one buffer."""
        found: dict[str, list[str]] = defaultdict(list)
        for given in self.inputs:
            found[self.block_of(given)].append(given)
        return found

    def owner_of(self, given: str) -> str:
        """The first of the inputs that lie in the same memory, to whom it is counted."""
        return self.lying_in[self.block_of(given)][0]

    def bytes_of(self, given: GraphInput) -> int | None:
        """What an input adds to the memory that is there at entry: its whole buffer, or nothing beside the owner."""
        if self.owner_of(given.buffer) != given.buffer:
            return 0
        return self._saved[given.buffer].bytes if given.buffer in self._saved else given.bytes

    def category_of(self, buffer: str) -> str:
        """output, saved, gradient or intermediate: what a buffer that the wrapper makes is for."""
        outputs = self._outputs
        if outputs is None or buffer not in outputs.names:
            return "intermediate"
        if self.direction == "backward":
            return "gradient"
        hidden = outputs.user_visible is not None and buffer not in outputs.user_visible
        return "saved" if hidden and self.direction == "forward" else "output"

    def input_category(self, given: GraphInput) -> str:
        """weight, input, gradient or saved: where an input comes from."""
        if (block := self._saved.get(given.buffer)) is not None:
            return block.given_as or "saved"  # the forward may have made a copy of what it was given
        if given.static:
            return "weight"
        if self.direction != "backward" or given.buffer.startswith("primals_"):
            return "input"
        return "gradient" if given.buffer.startswith("tangents_") else "saved"


def _saved(returned: Sequence[tuple[str, Block]], given: Iterable[str]) -> dict[str, Block]:
    """Input of a backward → the memory that its forward returned it in.

    A forward returns last what it saved, in the order of the backward's inputs (torch/_functorch/partitioners.py). A
    pass over one of the graphs may have renamed a value; where names are out of step, only equal ones count.
    """
    wanted = [name for name in given if not name.startswith("tangents_")]
    last, by_name = returned[max(0, len(returned) - len(wanted)) :], dict(returned)
    in_step = len(last) == len(wanted) and all(
        name == node or name not in by_name for name, (node, _) in zip(wanted, last, strict=True)
    )
    if in_step:
        return {name: block for name, (_, block) in zip(wanted, last, strict=True)}
    return {name: by_name[name] for name in wanted if name in by_name}


def _own_work(node: IrNode, copies: Collection[tuple[str | None, int | None]]) -> IrNode:
    """A copy that a library call asked for has that call alone as its origin.

    Inductor lists the origins of all unrealized arguments of the call as well (GraphLowering.run_node), and a copy is
    only made of what has a buffer: it computes none of them.
    """
    asked_by = node.origins[-1] if node.origins else None
    is_copy = node.kind == "pointwise" and (asked_by, node.bytes_written) in copies
    return replace(node, origins=node.origins[-1:]) if is_copy else node


def _only(seen: dict[type, list[object]], kind: type[T]) -> list[T]:
    return seen[kind]  # type: ignore[return-value]


def _as_call(line: LineSeen) -> LineSeen:
    """A call that is text already, such as `aten.bernoulli_(buf0, …)`, which updates its arguments in place."""
    match = TEXT_CALL.match(line.text or "") if line.kind == "str" else None
    if match is None:
        return line
    names = tuple(BUFFER.findall(match["arguments"]))
    return LineSeen(kind="ExternKernelOutLine", kernel=match["kernel"], args=names, buffer=names[0] if names else None)
