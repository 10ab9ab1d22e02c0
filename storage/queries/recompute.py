"""What the backward could compute again instead of finding it saved: bytes that this frees, and what it costs.

Of each block that the forward saves, the operators are followed back to values that are there anyway: inputs, and the
other saved values. These operators would run again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch, records_of
from fusionscope.storage.queries.rooflines import device
from fusionscope.storage.records import DeviceFact, Run
from fusionscope.storage.roofline import Bound, at_least, operation_rate

SMALL = 0.01  # of all saved bytes: a line that saves less comes after all others
# Their result is a look at memory that is there already; after AOTAutograd's decompositions no others are left.
_VIEWS = re.compile(
    r"^aten\.(_unsafe_view|view|view_as_\w+|_reshape_alias|permute|t|transpose|expand|slice|select|squeeze|unsqueeze|alias|"
    r"detach|split|split_with_sizes|unbind|as_strided|diagonal|lift_fresh)\b"
)
_PARTS = re.compile(r"^aten\.(split|split_with_sizes|unbind)\b")  # views as tuples
_GETITEM = "<built-in function getitem>"
# torch.utils.flop_counter has formulas for these; all else it counts as none.
_COUNTED = re.compile(r"^aten\.(_scaled_mm|mm|addmm|bmm|baddbmm|\w*convolution|_\w*attention\w*)\b")
_RANDOM = re.compile(r"inductor_seeds|^aten\.(rand|randn|rand_like|randn_like|bernoulli|native_dropout|multinomial)\b")


@dataclass(frozen=True, slots=True)
class Recompute:
    """What one source line has saved for the backward, and what computing it again would take."""

    file: str | None
    line: int | None
    source_text: str | None
    values: tuple[str, ...]  # FX nodes
    bytes: int  # of their memory: what is not kept any more
    operators: tuple[str, ...]  # that would run again, by target, in order, each once
    calls: int  # of them
    already: int  # of the calls, run again in the backward as it is
    flops: int | None  # by torch's own formulas, where pointwise operators count as none; None: not recorded
    moved: int  # bytes: what these calls read that is there already, and the values that they write
    least: Bound | None  # roofline of both on the run's GPU; None where its rates or the flops are not recorded
    reasons: tuple[str, ...]  # torch's words for why it is not computed again already
    random: bool  # draws random numbers, which come out the same only from the same state of the generator


@dataclass(frozen=True, slots=True)
class _Node:
    node: str
    position: int
    op: str
    target: str
    bytes: int | None
    dtype: str | None
    file: str | None
    line: int | None
    source_text: str | None
    saved: bool
    is_input: bool
    recomputed: bool
    reason: str | None
    flops: int | None


@dataclass(frozen=True, slots=True)
class _Edge:
    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that is saved, and the calls that make it from what is there anyway."""

    owner: _Node  # makes it
    views: tuple[_Node, ...]  # what is saved: the owner itself, or looks at its memory
    bytes: int
    calls: tuple[_Node, ...]  # in order
    reads: tuple[_Node, ...]  # what they read that is there anyway


def recomputable(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Recompute]:
    """By source line: those that free most for their cost first, small ones last. Empty without a partition."""
    forward, joint, lowered = (f"{graph_id.split('.')[0]}.{stage}" for stage in ("aot_forward", "joint", "forward"))
    nodes = fetch(con, _Node, _NODES, [run_id, forward, joint, lowered])
    edges = fetch(con, _Edge, _EDGES, [run_id, forward])
    lines: dict[tuple[str | None, int | None, str], list[_Block]] = defaultdict(list)
    for block in _Forward(nodes, edges).blocks():
        lines[block.owner.file, block.owner.line, block.owner.target].append(block)
    gpu, fp32_matmul = device(con, run_id), records_of(con, Run, run_id)[0].fp32_matmul
    return _ranked([_summed(blocks, gpu, fp32_matmul) for blocks in lines.values()])


def _summed(blocks: Sequence[_Block], gpu: DeviceFact | None, fp32_matmul: str | None) -> Recompute:
    """All blocks of a line given up together: a call that several need runs once."""
    first = blocks[0].owner
    calls = {call.node: call for block in blocks for call in block.calls}
    made = {block.owner.node: block.bytes for block in blocks}
    read = {node.node: node.bytes or 0 for block in blocks for node in block.reads if node.node not in made}
    moved = sum(read.values()) + sum(made.values())
    counted = [call for call in calls.values() if _COUNTED.match(call.target)]
    flops = sum(call.flops or 0 for call in counted) if all(call.flops is not None for call in counted) else None
    views = [view for block in blocks for view in block.views]
    rate = operation_rate(gpu, {call.dtype or "" for call in counted}, fp32_matmul) if gpu else None
    return Recompute(
        file=first.file,
        line=first.line,
        source_text=first.source_text,
        values=tuple(view.node for view in views),
        bytes=sum(made.values()),
        operators=tuple(dict.fromkeys(call.target for call in calls.values())),
        calls=len(calls),
        already=sum(call.recomputed for call in calls.values()),
        flops=flops,
        moved=moved,
        least=at_least(moved, flops, rate, gpu) if gpu and flops is not None and (rate or not flops) else None,
        reasons=tuple(dict.fromkeys(view.reason for view in views if view.reason)),
        random=any(_RANDOM.search(call.target) for call in calls.values()),
    )


def _ranked(found: Sequence[Recompute]) -> list[Recompute]:
    whole = sum(one.bytes for one in found)

    def cost(one: Recompute) -> tuple[bool, float, float]:
        size = max(one.bytes, 1)
        work = one.least.us if one.least else float("inf") if one.flops is None else float(one.flops)
        return one.bytes < SMALL * whole, work / size, one.moved / size

    return sorted(found, key=cost)


class _Forward:
    """AOTAutograd's forward graph with what the partitioner saves of it."""

    def __init__(self, nodes: Sequence[_Node], edges: Iterable[_Edge]) -> None:
        self._nodes = {node.node: node for node in nodes}
        self._sources: Mapping[str, list[str]] = defaultdict(list)
        for edge in edges:
            self._sources[edge.dst].append(edge.src)

    def blocks(self) -> Iterator[_Block]:
        """Each block of memory that is saved and no input of the call."""
        for owner, views in self._saved.items():
            if self._nodes[owner].op == "call_function":
                yield self._block(owner, views)

    @cached_property
    def _saved(self) -> dict[str, list[_Node]]:
        """The node that makes a block → the saved values that are it or look at it."""
        owners: dict[str, list[_Node]] = defaultdict(list)
        for node in self._nodes.values():
            if node.saved and not node.is_input:
                owners[self._owner(node.node)].append(node)
        return dict(owners)

    def _owner(self, name: str) -> str:
        """The node whose memory a value looks at: itself where it is no view."""
        while self._is_view(name):
            name = self._sources[name][0]
        return name

    def _is_view(self, name: str) -> bool:
        if not self._sources[name]:
            return False
        if self._nodes[name].target == _GETITEM:  # each of several results has memory of its own
            return bool(_PARTS.match(self._nodes[self._sources[name][0]].target))
        return bool(_VIEWS.match(self._nodes[name].target))

    def _block(self, owner: str, views: Sequence[_Node]) -> _Block:
        calls, reads = self._cone(owner)
        calls.sort(key=lambda call: call.position)
        size = min(self._nodes[owner].bytes or 0, sum(view.bytes or 0 for view in views))
        return _Block(self._nodes[owner], tuple(views), size, tuple(calls), tuple(reads.values()))

    def _cone(self, owner: str) -> tuple[list[_Node], dict[str, _Node]]:
        """The calls that lead to a block from what is there anyway, and what they read of that."""
        calls: list[_Node] = []
        reads: dict[str, _Node] = {}
        ahead, seen = [owner], {owner}
        while ahead:
            node = self._nodes[ahead.pop()]
            if node.target != _GETITEM:
                calls.append(node)
            for source in map(self._owner, self._sources[node.node]):
                if self._nodes[source].op != "call_function" or source in self._saved:
                    reads[source] = self._nodes[source]
                elif source not in seen:
                    seen.add(source)
                    ahead.append(source)
        return calls, reads


# Flops are counted of the scheduler's library and template calls, whose operator is the last of their origins.
_NODES = """
WITH counted AS (
    SELECT origins[-1] AS node, any_value(flops) AS flops FROM ir_nodes
    WHERE run_id = $1 AND graph_id = $4 AND flops IS NOT NULL GROUP BY ALL
)
SELECT n.node, n.position, n.op, n.target, n.bytes, n.dtype, n.file, n.line, n.source_text,
    coalesce(c.saved, false) AS saved, coalesce(c.is_input, false) AS is_input,
    coalesce(c.recomputed, false) AS recomputed, c.reason, counted.flops
FROM graph_nodes n LEFT JOIN counted USING (node)
LEFT JOIN partition_choices c ON c.run_id = $1 AND c.graph_id = $3 AND c.node = n.node
WHERE n.run_id = $1 AND n.graph_id = $2 AND n.op <> 'output' ORDER BY n.position
"""

_EDGES = """
SELECT src, dst FROM graph_edges
WHERE run_id = $1 AND graph_id = $2 AND dst <> 'output' ORDER BY rowid
"""
