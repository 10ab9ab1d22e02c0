"""One graph's plan as recorded: its buffers, calls, groups, scheduler nodes, and who reads what."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch


@dataclass(frozen=True, slots=True)
class PlanBuffer:
    """A buffer of the plan; steps are wrapper lines, None before the call and after it."""

    buffer: str
    category: str
    bytes: int | None
    allocated_at: int | None
    freed_at: int | None
    reuses: str | None
    reuse_kind: str | None
    ir_node: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel call of the wrapper."""

    position: int
    step: int
    kernel: str
    backend: str
    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A fusion group, at its place in the final schedule."""

    group_id: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A scheduler node, at the place that lowering gave it."""

    ir_node: str
    kind: str
    position: int
    buffers: tuple[str, ...]
    bytes_written: int | None
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """A scheduler node reads a buffer that another one wrote."""

    src: str
    dst: str
    buffer: str
    bytes: int | None


@dataclass(frozen=True)
class PlanFacts:
    """All of these for one graph."""

    buffers: dict[str, PlanBuffer]
    calls: tuple[Call, ...]  # in order
    groups: tuple[Group, ...]  # in final order
    nodes: dict[str, Node]
    reads: tuple[Read, ...]
    peak_bytes: int | None  # of the plan, above the entry of the call

    @cached_property
    def group_of(self) -> dict[str, Group]:
        """Scheduler node → its group."""
        return {member: group for group in self.groups for member in group.members}

    @cached_property
    def members_of(self) -> dict[str, tuple[str, ...]]:
        """Group → its scheduler nodes."""
        return {group.group_id: group.members for group in self.groups}

    @cached_property
    def call_of(self) -> dict[str, Call]:
        """Group → the call that runs it; a group without one does no work."""
        return {group_id: call for call in self.calls for group_id in call.group_ids}

    @cached_property
    def readers(self) -> dict[str, tuple[str, ...]]:
        """Buffer → the scheduler nodes that read it."""
        found: dict[str, list[str]] = defaultdict(list)
        for read in self.reads:
            found[read.buffer].append(read.dst)
        return {buffer: tuple(dict.fromkeys(nodes)) for buffer, nodes in found.items()}

    @cached_property
    def inputs_of(self) -> dict[str, tuple[str, ...]]:
        """Scheduler node → the buffers that it reads, those of other nodes."""
        found: dict[str, list[str]] = defaultdict(list)
        for read in self.reads:
            found[read.dst].append(read.buffer)
        return {node: tuple(dict.fromkeys(buffers)) for node, buffers in found.items()}

    @cached_property
    def taken_over_by(self) -> dict[str, PlanBuffer]:
        """Buffer → the one that got its memory."""
        return {made.reuses: made for made in self.buffers.values() if made.reuses}

    def step_of(self, ir_node: str) -> int | None:
        """The step of the call that runs a scheduler node."""
        group = self.group_of.get(ir_node)
        call = self.call_of.get(group.group_id) if group else None
        return call.step if call else None

    def steps_of(self, nodes: Iterable[str]) -> list[int]:
        """The steps at which the nodes run, in order."""
        return sorted({step for node in nodes if (step := self.step_of(node)) is not None})

    @cached_property
    def _steps(self) -> list[int]:
        return [call.step for call in self.calls]

    def call_at(self, step: int | None) -> Call | None:
        """The call of a step."""
        index = bisect_left(self._steps, -1 if step is None else step)
        return self.calls[index] if index < len(self.calls) and self.calls[index].step == step else None

    def last_call_before(self, step: int | None) -> Call | None:
        """The last call before a step; None for the step asks for the last call of all."""
        index = len(self.calls) if step is None else bisect_left(self._steps, step)
        return self.calls[index - 1] if index else None


def plan_facts(con: DuckDBPyConnection, run_id: str, graph_id: str) -> PlanFacts:
    """What was recorded of a graph's plan; empty where nothing was."""
    ask = [run_id, graph_id]
    return PlanFacts(
        buffers=_by_name(fetch(con, PlanBuffer, _BUFFERS.format(which="true"), ask)),
        calls=tuple(fetch(con, Call, _CALLS.format(which="true"), ask)),
        groups=tuple(fetch(con, Group, _GROUPS.format(which="true"), ask)),
        nodes={node.ir_node: node for node in fetch(con, Node, _NODES.format(which="true"), ask)},
        reads=tuple(fetch(con, Read, _READS.format(which="true"), ask)),
        peak_bytes=_peak(con, ask),
    )


def facts_around(con: DuckDBPyConnection, run_id: str, graph_id: str, buffers: Sequence[str]) -> PlanFacts:
    """Of a plan that may be huge, what has to do with `buffers`: who takes them over, and the groups around them."""
    ask = [run_id, graph_id]
    chain = fetch(con, PlanBuffer, _BUFFERS.format(which=_TAKERS), [*ask, list(buffers)])
    written = [buffer.ir_node for buffer in chain if buffer.ir_node]
    reads = fetch(con, Read, _READS.format(which=_among("buffer")), [*ask, list(buffers)])
    holding = _GROUPS.format(which=_HOLDING)
    around = fetch(con, Group, holding, [*ask, [*written, *(read.dst for read in reads)]])
    members = [member for group in around for member in group.members]
    near = fetch(con, Read, _READS.format(which=_among("dst", "src")), [*ask, members])
    ends = [node for read in near for node in (read.src, read.dst)]  # their steps say when a member was needed
    groups = fetch(con, Group, holding, [*ask, [*members, *ends]])
    outside = fetch(con, PlanBuffer, _BUFFERS.format(which=_among("buffer")), [*ask, [read.buffer for read in near]])
    return PlanFacts(
        buffers=_by_name([*outside, *chain]),
        calls=tuple(fetch(con, Call, _CALLS.format(which=_RUNNING), [*ask, [group.group_id for group in groups]])),
        groups=tuple(groups),
        nodes={
            node.ir_node: node for node in fetch(con, Node, _NODES.format(which=_among("ir_node")), [*ask, members])
        },
        reads=tuple(dict.fromkeys([*reads, *near])),
        peak_bytes=_peak(con, ask),
    )


def calls_of(con: DuckDBPyConnection, run_id: str, graph_id: str) -> int:
    """How many kernels the wrapper of a graph calls."""
    row = con.execute(_COUNT, [run_id, graph_id]).fetchone()
    return int(row[0]) if row else 0


def _by_name(buffers: Iterable[PlanBuffer]) -> dict[str, PlanBuffer]:
    return {buffer.buffer: buffer for buffer in buffers}


def _peak(con: DuckDBPyConnection, ask: list[str]) -> int | None:
    row = con.execute(_PEAK, ask).fetchone()
    return row[0] if row else None


def _among(*columns: str) -> str:
    return "(" + " OR ".join(f"{column} IN (SELECT unnest($3))" for column in columns) + ")"


_TAKERS = """buffer IN (
    WITH RECURSIVE chain(name) AS (
        SELECT unnest($3) UNION
        SELECT b.buffer FROM buffers b JOIN chain ON b.reuses = chain.name WHERE b.run_id = $1 AND b.graph_id = $2
    )
    SELECT name FROM chain
)"""
_HOLDING = """group_id IN (
    SELECT held.group_id FROM (
        SELECT group_id, unnest(members) AS member FROM fusion_groups WHERE run_id = $1 AND graph_id = $2
    ) held WHERE held.member IN (SELECT unnest($3))
)"""
_RUNNING = """c.position IN (
    SELECT run.position FROM (
        SELECT position, unnest(group_ids) AS id FROM kernel_calls WHERE run_id = $1 AND graph_id = $2
    ) run WHERE run.id IN (SELECT unnest($3))
)"""
_COUNT = "SELECT count(*) FROM kernel_calls WHERE run_id = $1 AND graph_id = $2"

_PEAK = "SELECT max(live_bytes) FROM memory_points WHERE run_id = $1 AND graph_id = $2 AND basis = 'plan'"

_BUFFERS = """
SELECT buffer, category, bytes, allocated_at, freed_at, reuses, reuse_kind, ir_node FROM buffers
WHERE run_id = $1 AND graph_id = $2 AND {which} ORDER BY allocated_at NULLS FIRST, rowid
"""

_CALLS = """
SELECT position, step, k.name AS kernel, k.backend, coalesce(group_ids, []) AS group_ids
FROM kernel_calls c JOIN kernels k USING (run_id, kernel_id)
WHERE run_id = $1 AND c.graph_id = $2 AND step IS NOT NULL AND {which} ORDER BY position
"""

_GROUPS = """
SELECT group_id, members FROM fusion_groups WHERE run_id = $1 AND graph_id = $2 AND {which} ORDER BY position
"""

_NODES = """
SELECT ir_node, kind, position, coalesce(buffers, []) AS buffers, bytes_written, coalesce(origins, []) AS origins
FROM ir_nodes WHERE run_id = $1 AND graph_id = $2 AND {which} ORDER BY position
"""

_READS = "SELECT src, dst, buffer, bytes FROM ir_edges WHERE run_id = $1 AND graph_id = $2 AND {which}"
