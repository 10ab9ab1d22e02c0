"""Inside fusion groups: the FX nodes that each computes, the values between them, and those saved for the backward."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.fusion import MEMBER


@dataclass(frozen=True, slots=True)
class Op:
    """An FX node as one group computes it; a node inlined in several groups comes once for each."""

    group_id: str
    node: str
    ir_nodes: tuple[str, ...]  # scheduler nodes of the group that compute it, in schedule order
    target: str
    shape: tuple[str, ...] | None
    stride: tuple[str, ...] | None
    dtype: str | None
    bytes: int | None
    flops: int | None
    module_path: str | None
    file: str | None
    line: int | None
    source_text: str | None
    recomputed: bool


@dataclass(frozen=True, slots=True)
class Use:
    """A value that flows between two FX nodes."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class Handover:
    """A buffer that one scheduler node writes and another reads."""

    src: str
    dst: str
    src_group: str
    dst_group: str
    buffer: str
    bytes: int | None
    materialised: bool  # False: the value stays in registers


@dataclass(frozen=True, slots=True)
class Link:
    """A value that the forward saves for the backward, by the groups that write and read it."""

    src_node: str
    dst_node: str
    src_groups: tuple[str, ...]  # of the forward; empty where the value is an input of it
    dst_groups: tuple[str, ...]  # of the backward
    bytes: int | None


def ops(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Op]:
    """What each group computes, in order of the graph."""
    return fetch(con, Op, _OPS, [run_id, graph_id])


def scheduler_nodes(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Op]:
    """The scheduler nodes of each group in place of what they compute: named as Inductor names them."""
    return fetch(con, Op, _SCHEDULER_NODES, [run_id, graph_id])


def uses(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Use]:
    """Edges of the FX graph."""
    return fetch(con, Use, "SELECT src, dst FROM graph_edges WHERE run_id = $1 AND graph_id = $2", [run_id, graph_id])


def handovers(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Handover]:
    """Buffers between scheduler nodes, within groups and across them."""
    return fetch(con, Handover, _HANDOVERS, [run_id, graph_id])


def allocations(con: DuckDBPyConnection, run_id: str, graph_id: str) -> dict[str, int]:
    """The wrapper step at which each buffer of a graph begins to live; inputs, there before the call, are left out."""
    return dict(con.execute(_ALLOCATIONS, [run_id, graph_id]).fetchall())


def saved_links(con: DuckDBPyConnection, run_id: str, forward: str, backward: str) -> list[Link]:
    """Values that `forward` saves and `backward` reads, largest first."""
    return fetch(con, Link, _LINKS, [run_id, forward, backward])


_OPS = f"""
WITH {MEMBER},
held AS (
    SELECT group_id, fx AS node, list(ir_node ORDER BY member.position, node.position) AS ir_nodes
    FROM origin JOIN member USING (group_id, ir_node) JOIN node USING (ir_node) GROUP BY group_id, fx
)
SELECT group_id, node, ir_nodes, coalesce(target, node) AS target, shape, stride, dtype, bytes, flops, module_path,
    file, line, source_text, coalesce(recomputed, false) AS recomputed
FROM held LEFT JOIN fx_node USING (node) ORDER BY fx_node.position, node, group_id
"""

_SCHEDULER_NODES = f"""
WITH {MEMBER},
last AS (
    SELECT group_id, ir_node, arg_max(operator, place) AS target, arg_max(module_path, place) AS module_path,
        arg_max(file, place) AS file, arg_max(line, place) FILTER (file IS NOT NULL) AS line,
        bool_or(again) AS recomputed
    FROM origin GROUP BY group_id, ir_node
)
SELECT group_id, ir_node AS node, [ir_node] AS ir_nodes, coalesce(last.target, kind) AS target, NULL AS shape,
    NULL AS stride, NULL AS dtype, bytes_written AS bytes, flops, module_path, file, line, NULL AS source_text,
    coalesce(recomputed, false) AS recomputed
FROM member JOIN node USING (ir_node) LEFT JOIN last USING (group_id, ir_node) ORDER BY node.position
"""

_HANDOVERS = f"""
WITH {MEMBER}
SELECT e.src, e.dst, s.group_id AS src_group, d.group_id AS dst_group, buffer, bytes,
    coalesce(materialised, true) AS materialised
FROM ir_edges e JOIN member s ON s.ir_node = e.src JOIN member d ON d.ir_node = e.dst
WHERE run_id = $1 AND graph_id = $2 ORDER BY e.src, e.dst, buffer
"""

# A saved value is an FX node of the forward and a placeholder of the backward: the groups at its ends are those that
# compute the one, and those that compute a user of the other.
_LINKS = """
WITH link AS (
    SELECT DISTINCT node_a, node_b FROM node_links WHERE run_id = $1 AND graph_a = $2 AND graph_b = $3
),
computed AS (
    SELECT graph_id, group_id, unnest(origins) AS node
    FROM (SELECT graph_id, group_id, unnest(members) AS ir_node FROM fusion_groups WHERE run_id = $1)
    JOIN (SELECT graph_id, ir_node, origins FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node)
    WHERE graph_id IN ($2, $3)
),
writer AS (
    SELECT node, list(DISTINCT group_id ORDER BY group_id) AS groups FROM computed WHERE graph_id = $2 GROUP BY node
),
reader AS (
    SELECT src AS node, list(DISTINCT group_id ORDER BY group_id) AS groups
    FROM graph_edges JOIN computed ON computed.graph_id = $3 AND computed.node = dst
    WHERE run_id = $1 AND graph_edges.graph_id = $3 GROUP BY src
)
SELECT node_a AS src_node, node_b AS dst_node, coalesce(w.groups, []) AS src_groups,
    coalesce(r.groups, []) AS dst_groups, n.bytes
FROM link LEFT JOIN writer w ON w.node = node_a LEFT JOIN reader r ON r.node = node_b
LEFT JOIN graph_nodes n ON n.run_id = $1 AND n.graph_id = $3 AND n.node = node_b
ORDER BY n.bytes DESC NULLS LAST, node_a
"""

_ALLOCATIONS = """
SELECT buffer, allocated_at FROM buffers WHERE run_id = $1 AND graph_id = $2 AND allocated_at IS NOT NULL
"""
