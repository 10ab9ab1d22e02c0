"""What was fused with what and why: groups, the buffers between them, and the decisions behind them."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.graphs import OWN_ORIGINS


@dataclass(frozen=True, slots=True)
class FusionCounts:
    """The outcome of fusion in one graph, as counts."""

    scheduler_nodes: int
    groups: int
    calls: int
    rounds: int
    fused: int
    refused: int
    legal: int
    largest_refused_bytes: int | None  # most bytes that a refused pair had in common
    duplicated: int  # producers inlined into several users at lowering
    realized: int  # producers given a buffer at lowering


@dataclass(frozen=True, slots=True)
class Group:
    """A fusion group, with the kernel call that runs it. `call` is None for groups that need no kernel."""

    group_id: str
    position: int
    members: tuple[str, ...]
    kind: str  # template, extern, reduction, layout, pointwise, nop
    ops: tuple[str, ...]  # FX nodes computed in it, in order of the graph
    targets: tuple[str, ...]  # their operators, one for one
    bytes_read: int | None  # summed over its scheduler nodes
    bytes_written: int | None
    recomputed: bool  # holds an op of the forward pass that is computed again
    call: int | None  # position of its first kernel call
    kernel_id: str | None
    kernel: str | None
    backend: str | None
    modules: tuple[str | None, ...]  # paths of the modules of its ops, one for one
    file: str | None  # of its last op that has a line
    line: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """A pair that the scheduler tested in one round, with the operators behind the names."""

    round: int
    a: str
    b: str
    a_ops: tuple[str, ...]  # FX nodes in order of the graph
    b_ops: tuple[str, ...]
    a_groups: tuple[str, ...]  # final groups that hold the members of `a`
    b_groups: tuple[str, ...]
    direction: str
    verdict: str
    reason_code: str | None  # see storage/reasons.py
    reason: str | None
    refused_by: str | None
    shared_bytes: int | None
    score_template: int | None
    score_type: int | None
    score_memory: int | None
    score_overlap: int | None
    score_proximity: int | None
    rank: int | None
    order_taken: int | None
    result: str | None
    ms_before: float | None
    ms_after: float | None
    times_tested: int


@dataclass(frozen=True, slots=True)
class Lowering:
    """A producer with several users: given a buffer, or inlined in each of them, before the scheduler saw it."""

    node: str
    target: str | None
    file: str | None
    line: int | None
    source_text: str | None
    users: int
    reads: int | None
    opcount: int | None
    threshold: str | None
    realized: bool
    reason: str | None
    bytes: int | None
    groups: tuple[str, ...]  # final groups that compute it


@dataclass(frozen=True, slots=True)
class Member:
    """A scheduler node of a group."""

    ir_node: str
    kind: str
    target: str | None
    origins: tuple[str, ...]
    buffers: tuple[str, ...]
    bytes_read: int | None
    bytes_written: int | None
    flops: int | None


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the model, with the FX nodes that it became in one group."""

    file: str | None
    line: int | None
    source_text: str | None
    module_path: str | None
    nodes: tuple[str, ...]
    recomputed: bool


@dataclass(frozen=True, slots=True)
class GroupBuffer:
    """A buffer that a group writes or reads."""

    buffer: str
    role: str  # writes, reads, inside
    bytes: int | None
    category: str | None
    shape: tuple[str, ...] | None
    dtype: str | None
    reuses: str | None
    other: tuple[str, ...]  # groups at the other end


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The text of a kernel."""

    kernel_id: str
    name: str
    backend: str
    source: str | None


def counts(con: DuckDBPyConnection, run_id: str, graph_id: str) -> FusionCounts:
    """How many nodes became how many groups and kernel calls, and how many pairs said no."""
    return fetch(con, FusionCounts, _COUNTS, [run_id, graph_id])[0]


def groups(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Group]:
    """Fusion groups in schedule order."""
    return fetch(con, Group, _GROUPS, [run_id, graph_id])


def decisions(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Decision]:
    """Every tested pair: refusals by the bytes they had in common, then what was fused in the order taken."""
    return fetch(con, Decision, _DECISIONS, [run_id, graph_id])


def lowerings(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Lowering]:
    """Producers with several users, inlined ones first."""
    return fetch(con, Lowering, _LOWERINGS, [run_id, graph_id])


def members(con: DuckDBPyConnection, run_id: str, graph_id: str, group_id: str) -> list[Member]:
    """Scheduler nodes of a group."""
    return fetch(con, Member, _MEMBERS, [run_id, graph_id, group_id])


def source_lines(con: DuckDBPyConnection, run_id: str, graph_id: str, group_id: str) -> list[SourceLine]:
    """Lines of the model that a group computes, in order of the graph."""
    return fetch(con, SourceLine, _SOURCE, [run_id, graph_id, group_id])


def group_buffers(con: DuckDBPyConnection, run_id: str, graph_id: str, group_id: str) -> list[GroupBuffer]:
    """Buffers at a group's edge and inside it. Graph inputs are not listed: no scheduler node writes them."""
    return fetch(con, GroupBuffer, _BUFFERS, [run_id, graph_id, group_id])


def kernel_source(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> KernelSource | None:
    """A kernel's text; None when the run knows no such kernel."""
    found = fetch(con, KernelSource, _KERNEL, [run_id, kernel_id])
    return found[0] if found else None


_COUNTS = """
WITH pairs AS (SELECT * FROM fusion_decisions WHERE run_id = $1 AND graph_id = $2),
lowered AS (SELECT * FROM realize_decisions WHERE run_id = $1 AND graph_id = $2)
SELECT
    (SELECT count(*) FROM ir_nodes WHERE run_id = $1 AND graph_id = $2) AS scheduler_nodes,
    (SELECT count(*) FROM fusion_groups WHERE run_id = $1 AND graph_id = $2) AS groups,
    (SELECT count(*) FROM kernel_calls WHERE run_id = $1 AND graph_id = $2) AS calls,
    coalesce((SELECT max(round) FROM pairs), 0) AS rounds,
    (SELECT count(DISTINCT (a, b)) FROM pairs WHERE verdict = 'fused') AS fused,
    (SELECT count(DISTINCT (a, b)) FROM pairs WHERE verdict = 'refused') AS refused,
    (SELECT count(DISTINCT (a, b)) FROM pairs WHERE verdict = 'legal') AS legal,
    (SELECT max(shared_bytes) FROM pairs WHERE verdict = 'refused') AS largest_refused_bytes,
    (SELECT count(*) FROM lowered WHERE NOT realized) AS duplicated,
    (SELECT count(*) FROM lowered WHERE realized) AS realized
"""

MEMBER = f"""node AS (SELECT * FROM ir_nodes WHERE run_id = $1 AND graph_id = $2),
fx_node AS (SELECT * FROM graph_nodes WHERE run_id = $1 AND graph_id = $2),
member AS (
    SELECT group_id, f.position, unnest(members) AS ir_node
    FROM fusion_groups f WHERE run_id = $1 AND graph_id = $2
),
named AS (
    SELECT group_id, ir_node, unnest({OWN_ORIGINS}) AS fx
    FROM member JOIN node USING (ir_node)
),
origin AS (
    SELECT group_id, ir_node, fx, x.position AS place, coalesce(target, fx) AS operator,
        coalesce(recomputed, false) AS again, module_path, file, line
    FROM named LEFT JOIN fx_node x ON x.node = fx
)"""

CROSSING = """edge AS (
    SELECT DISTINCT s.group_id AS src, d.group_id AS dst, buffer, bytes
    FROM ir_edges e JOIN member s ON s.ir_node = e.src JOIN member d ON d.ir_node = e.dst
    WHERE run_id = $1 AND graph_id = $2
)"""

_GROUPS = f"""
WITH {MEMBER},
copied AS (SELECT node AS fx FROM layout_changes WHERE run_id = $1 AND graph_id = $2 AND is_copy),
computed AS (
    SELECT group_id, list(fx ORDER BY place, fx) AS ops, list(operator ORDER BY place, fx) AS targets,
        bool_or(again) AS recomputed, bool_or(fx IN (SELECT fx FROM copied)) AS copies,
        list(module_path ORDER BY place, fx) AS modules, arg_max(file, place) AS file,
        arg_max(line, place) FILTER (file IS NOT NULL) AS line
    FROM (SELECT DISTINCT group_id, fx, place, operator, again, module_path, file, line FROM origin) GROUP BY group_id
),
call AS (
    SELECT position, kernel_id, unnest(group_ids) AS group_id
    FROM kernel_calls WHERE run_id = $1 AND graph_id = $2
),
called AS (
    SELECT group_id, min(position) AS call, arg_min(kernel_id, position) AS kernel_id FROM call GROUP BY group_id
),
work AS (
    SELECT group_id, member.position, list(ir_node ORDER BY node.position) AS members,
        CASE WHEN bool_or(kind = 'template') THEN 'template'
            WHEN bool_or(kind = 'extern') THEN 'extern'
            WHEN bool_or(kind = 'reduction') THEN 'reduction'
            WHEN bool_and(kind = 'nop') THEN 'nop'
            ELSE 'pointwise' END AS kind,
        sum(bytes_read)::BIGINT AS bytes_read, sum(bytes_written)::BIGINT AS bytes_written
    FROM member LEFT JOIN node USING (ir_node) GROUP BY group_id, member.position
)
SELECT group_id, work.position, members,
    CASE WHEN kind = 'pointwise' AND copies THEN 'layout' ELSE kind END AS kind,
    coalesce(ops, []) AS ops, coalesce(targets, []) AS targets, work.bytes_read, work.bytes_written,
    coalesce(recomputed, false) AS recomputed, call, called.kernel_id, name AS kernel, backend,
    coalesce(modules, []) AS modules, file, line
FROM work LEFT JOIN computed USING (group_id) LEFT JOIN called USING (group_id)
LEFT JOIN kernels ON kernels.run_id = $1 AND kernels.kernel_id = called.kernel_id
ORDER BY work.position
"""

# A fused node is named after its members, joined by "_": op7_op8. The pair is described by what its members compute.
_DECISIONS = f"""
WITH {MEMBER},
pair AS (SELECT * FROM fusion_decisions WHERE run_id = $1 AND graph_id = $2),
side AS (SELECT a AS name FROM pair UNION SELECT b FROM pair),
part AS (SELECT name, unnest(string_split(name, '_')) AS ir_node FROM side),
held AS (
    SELECT name, group_id, fx, place
    FROM part JOIN member USING (ir_node) LEFT JOIN origin USING (ir_node, group_id)
),
grouped AS (SELECT name, list(DISTINCT group_id ORDER BY group_id) AS groups FROM held GROUP BY name),
computed AS (
    SELECT name, list(fx ORDER BY place, fx) AS ops
    FROM (SELECT DISTINCT name, fx, place FROM held WHERE fx IS NOT NULL) GROUP BY name
),
described AS (
    SELECT name, coalesce(groups, []) AS groups, coalesce(ops, []) AS ops
    FROM side LEFT JOIN grouped USING (name) LEFT JOIN computed USING (name)
)
SELECT round, a, b, x.ops AS a_ops, y.ops AS b_ops, x.groups AS a_groups, y.groups AS b_groups, direction, verdict,
    reason_code, reason, refused_by, shared_bytes, score_template, score_type, score_memory, score_overlap,
    score_proximity, rank, order_taken, result, ms_before, ms_after, times_tested
FROM pair JOIN described x ON x.name = a JOIN described y ON y.name = b
ORDER BY verdict <> 'refused', shared_bytes DESC NULLS LAST, round, order_taken, a, b
"""

_LOWERINGS = f"""
WITH {MEMBER},
place AS (SELECT fx AS node, list(DISTINCT group_id ORDER BY group_id) AS groups FROM origin GROUP BY fx)
SELECT r.node, target, file, line, source_text, users, reads, opcount, threshold, realized, reason, r.bytes,
    coalesce(groups, []) AS groups
FROM realize_decisions r LEFT JOIN fx_node USING (node) LEFT JOIN place USING (node)
WHERE r.run_id = $1 AND r.graph_id = $2
ORDER BY realized, users DESC, r.node
"""

_MEMBERS = f"""
WITH {MEMBER}
SELECT ir_node, kind, target, origins, buffers, bytes_read, bytes_written, flops
FROM member JOIN node USING (ir_node) WHERE group_id = $3 ORDER BY node.position
"""

_SOURCE = f"""
WITH {MEMBER}
SELECT file, line, any_value(source_text) AS source_text, any_value(module_path) AS module_path,
    list(node ORDER BY position) AS nodes, coalesce(bool_or(recomputed), false) AS recomputed
FROM fx_node SEMI JOIN (SELECT fx AS node FROM origin WHERE group_id = $3) USING (node)
GROUP BY file, line ORDER BY min(position)
"""

_BUFFERS = f"""
WITH {MEMBER}, {CROSSING},
written AS (SELECT unnest(buffers) AS buffer FROM member JOIN node USING (ir_node) WHERE group_id = $3),
touched AS (
    SELECT buffer, max(bytes) AS bytes, list(DISTINCT CASE WHEN src = $3 THEN dst ELSE src END) AS other,
        CASE WHEN bool_and(src = $3 AND dst = $3) THEN 'inside'
            WHEN bool_or(src = $3) THEN 'writes'
            ELSE 'reads' END AS role
    FROM edge WHERE src = $3 OR dst = $3 GROUP BY buffer
    UNION ALL
    SELECT buffer, NULL, [], 'writes' FROM written WHERE buffer NOT IN (SELECT buffer FROM edge)
)
SELECT t.buffer, role, coalesce(b.bytes, t.bytes) AS bytes, category, shape, dtype, reuses,
    list_sort([g FOR g IN other IF g <> $3]) AS other
FROM touched t LEFT JOIN buffers b ON b.run_id = $1 AND b.graph_id = $2 AND b.buffer = t.buffer
ORDER BY CASE role WHEN 'reads' THEN 0 WHEN 'inside' THEN 1 ELSE 2 END, coalesce(b.bytes, t.bytes) DESC NULLS LAST
"""

_KERNEL = "SELECT kernel_id, name, backend, source FROM kernels WHERE run_id = $1 AND kernel_id = $2"
