"""One graph's plan as recorded: its buffers, calls, groups, scheduler nodes, and who reads what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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

    def last_call_before(self, step: int | None) -> Call | None:
        """The last call before a step; None for the step asks for the last call of all."""
        return next((call for call in reversed(self.calls) if step is None or call.step < step), None)


def plan_facts(con: DuckDBPyConnection, run_id: str, graph_id: str) -> PlanFacts:
    """What was recorded of a graph's plan; empty where nothing was."""
    ask = [run_id, graph_id]
    row = con.execute(_PEAK, ask).fetchone()
    return PlanFacts(
        buffers={b.buffer: b for b in fetch(con, PlanBuffer, _BUFFERS, ask)},
        calls=tuple(fetch(con, Call, _CALLS, ask)),
        groups=tuple(fetch(con, Group, _GROUPS, ask)),
        nodes={n.ir_node: n for n in fetch(con, Node, _NODES, ask)},
        reads=tuple(fetch(con, Read, _READS, ask)),
        peak_bytes=row[0] if row else None,
    )


_PEAK = "SELECT max(live_bytes) FROM memory_points WHERE run_id = $1 AND graph_id = $2 AND basis = 'plan'"

_BUFFERS = """
SELECT buffer, category, bytes, allocated_at, freed_at, reuses, reuse_kind, ir_node FROM buffers
WHERE run_id = $1 AND graph_id = $2 ORDER BY allocated_at NULLS FIRST, rowid
"""

_CALLS = """
SELECT position, step, k.name AS kernel, k.backend, coalesce(group_ids, []) AS group_ids
FROM kernel_calls c JOIN kernels k USING (run_id, kernel_id)
WHERE run_id = $1 AND c.graph_id = $2 AND step IS NOT NULL ORDER BY position
"""

_GROUPS = "SELECT group_id, members FROM fusion_groups WHERE run_id = $1 AND graph_id = $2 ORDER BY position"

_NODES = """
SELECT ir_node, kind, position, coalesce(buffers, []) AS buffers, bytes_written, coalesce(origins, []) AS origins
FROM ir_nodes WHERE run_id = $1 AND graph_id = $2 ORDER BY position
"""

_READS = "SELECT src, dst, buffer, bytes FROM ir_edges WHERE run_id = $1 AND graph_id = $2"
