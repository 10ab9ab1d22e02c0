"""Which kernels a run has, what they compute and how long they took."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries import fusion
from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.fusion import Decision
from fusionscope.storage.queries.graphs import OWN_ORIGINS
from fusionscope.storage.records import KernelCode, KernelConfig
from fusionscope.storage.schema import columns


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel with its calls in the emitted wrapper and its time, or an operator that was timed by name only."""

    kernel_id: str | None  # None: an operator, which several library kernels may call
    graph_id: str | None
    name: str
    backend: str  # of a kernel; "operator"
    kind: str | None  # template, extern, reduction, pointwise: what its first call does
    calls: int  # in one call of its graph
    groups: int | None  # distinct fusion groups over all calls
    ops: int | None  # FX nodes over all calls
    bytes_read: int | None  # of one call; see `kernels`
    bytes_written: int | None
    moved: int | None  # bytes that one call has to read and write; see `kernels`
    flops: int | None  # of one call
    flop_dtypes: tuple[str, ...] | None  # of what the counted operations read and write
    call_us: float | None  # one call: the median, of a library kernel the mean
    total_us: float | None  # per call of the model
    method: str | None
    configs: int | None  # in which it was compiled; None where no configuration is recorded
    decided: bool | None  # one of them was chosen, or there was no other; else what follows is of the fullest one
    registers: int | None
    spill_bytes: int | None
    occupancy: float | None
    occupancy_limit: str | None


@dataclass(frozen=True, slots=True)
class KernelOp:
    """An FX node that a kernel computes."""

    node: str
    target: str
    shape: tuple[str, ...] | None
    dtype: str | None
    file: str | None
    line: int | None
    source_text: str | None
    module_path: str | None
    recomputed: bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel in the emitted wrapper."""

    position: int
    step: int | None
    line: int | None
    text: str | None  # that line of the wrapper
    group_ids: tuple[str, ...]
    ops: tuple[str, ...]
    grid: str | None


def kernels(con: DuckDBPyConnection, run_id: str) -> list[KernelRow]:
    """Kernels of the user's own calls, slowest first; those without a time by the bytes that they move.

    What one call reads, writes, moves and computes is the mean over its calls, as is the time of a library kernel,
    which is one kernel whatever its shapes. `moved` is the least traffic, see KernelCall.
    """
    return fetch(con, KernelRow, _KERNELS, [run_id])


def ops(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[KernelOp]:
    """What a kernel computes, in order of the graph."""
    return fetch(con, KernelOp, _OPS, [run_id, kernel_id])


def configurations(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[KernelConfig]:
    """The configurations in which a kernel was compiled, as Inductor listed them."""
    return fetch(con, KernelConfig, _CONFIGURATIONS, [run_id, kernel_id])


def code(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[KernelCode]:
    """What a kernel became on its way to the binary, in each configuration."""
    return fetch(con, KernelCode, _CODE, [run_id, kernel_id])


def calls(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[Call]:
    """A kernel's calls in order."""
    return fetch(con, Call, _CALLS, [run_id, kernel_id])


def nodes(con: DuckDBPyConnection, run_id: str, graph_id: str) -> dict[str, set[str]]:
    """Kernel id -> the scheduler nodes that it computes, over all its calls in a graph."""
    found: dict[str, set[str]] = {}
    for kernel_id, members in con.execute(_NODES, [run_id, graph_id]).fetchall():
        found.setdefault(kernel_id, set()).update(members)
    return found


def grown_by(con: DuckDBPyConnection, run_id: str, kernel_id: str) -> list[Decision]:
    """The fusions that made the groups which a kernel runs, in the order in which the scheduler took them."""
    groups = {group for call in calls(con, run_id, kernel_id) for group in call.group_ids}
    pairs = fusion.decisions(con, run_id, kernel_id.rpartition("/")[0])
    grown = [pair for pair in pairs if pair.verdict == "fused" and groups.intersection(pair.a_groups)]
    return sorted(grown, key=lambda pair: pair.order_taken or 0)


_KERNELS = f"""
WITH call AS (SELECT * FROM kernel_calls WHERE run_id = $1),
called AS (
    SELECT kernel_id, count(*) AS calls,
        avg(bytes_read)::BIGINT AS mean_read, avg(bytes_written)::BIGINT AS mean_written,
        CASE WHEN count(moved) = count(*) THEN avg(moved)::BIGINT END AS moved,
        CASE WHEN count(flops) = count(*) THEN avg(flops)::BIGINT END AS flops
    FROM call GROUP BY kernel_id
),
grouped AS (SELECT DISTINCT kernel_id, graph_id, unnest(group_ids) AS group_id FROM call),
held AS (
    SELECT kernel_id, graph_id, unnest(members) AS ir_node
    FROM grouped JOIN (SELECT * FROM fusion_groups WHERE run_id = $1) USING (graph_id, group_id)
),
computed AS (
    SELECT kernel_id, graph_id, unnest({OWN_ORIGINS}) AS fx
    FROM held JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node)
),
counted AS (SELECT kernel_id, count(DISTINCT group_id) AS groups FROM grouped GROUP BY kernel_id),
worked AS (SELECT kernel_id, count(DISTINCT fx) AS ops FROM computed GROUP BY kernel_id),
first_call AS (
    SELECT kernel_id, graph_id, unnest(group_ids) AS group_id
    FROM (FROM call QUALIFY row_number() OVER (PARTITION BY kernel_id ORDER BY position) = 1)
),
first_node AS (
    SELECT kernel_id, graph_id, unnest(members) AS ir_node
    FROM first_call JOIN (SELECT * FROM fusion_groups WHERE run_id = $1) USING (graph_id, group_id)
),
kinds AS (
    SELECT kernel_id,
        CASE WHEN bool_or(kind = 'template') THEN 'template' WHEN bool_or(kind = 'extern') THEN 'extern'
            WHEN bool_or(kind = 'reduction') THEN 'reduction' ELSE 'pointwise' END AS kind
    FROM first_node JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node) GROUP BY kernel_id
),
fx_node AS (SELECT graph_id, node, dtype FROM graph_nodes WHERE run_id = $1),
counted_node AS (
    SELECT DISTINCT kernel_id, graph_id, unnest({OWN_ORIGINS}) AS node
    FROM first_node JOIN (SELECT * FROM ir_nodes WHERE run_id = $1 AND flops IS NOT NULL) USING (graph_id, ir_node)
),
multiplied AS (
    SELECT kernel_id, list_distinct(list(dtype)) AS flop_dtypes FROM (
        SELECT kernel_id, dtype FROM counted_node JOIN fx_node USING (graph_id, node)
        UNION ALL
        SELECT kernel_id, source.dtype FROM counted_node c
        JOIN graph_edges e ON e.run_id = $1 AND e.graph_id = c.graph_id AND e.dst = c.node
        JOIN fx_node source ON source.graph_id = c.graph_id AND source.node = e.src
    ) WHERE dtype IS NOT NULL GROUP BY kernel_id
),
timed AS (  -- a generated kernel runs no operator: one under its id finishes its reduction, and stays a row of its own
    SELECT t.* REPLACE (CASE WHEN k.backend = 'extern' OR op IS NULL THEN kernel_id END AS kernel_id)
    FROM kernel_timings t LEFT JOIN kernels k USING (run_id, kernel_id) WHERE run_id = $1 AND variant = 'compiled'
),
spent AS (  -- one library call may run several kernels
    SELECT kernel_id, max(median_us) AS median_us, sum(total_us) AS total_us, any_value(method) AS method
    FROM timed WHERE kernel_id IS NOT NULL GROUP BY kernel_id
),
executed AS (  -- how often a call of the model runs a graph, by the calls of its generated kernels
    SELECT graph_id, max(t.calls // c.calls) AS times
    FROM timed t JOIN called c USING (kernel_id)
    JOIN (SELECT kernel_id, graph_id FROM kernels WHERE run_id = $1 AND backend <> 'extern') USING (kernel_id)
    GROUP BY graph_id
),
fullest AS (
    SELECT *, count(*) OVER (PARTITION BY kernel_id) AS configs,
        coalesce(bool_or(chosen) OVER (PARTITION BY kernel_id), false) AS decided
    FROM kernel_configs WHERE run_id = $1
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id
        ORDER BY coalesce(chosen, false) DESC, occupancy, registers DESC, spill_bytes DESC, config
    ) = 1
),
driven AS (
    SELECT g.graph_id, g.position FROM graphs g LEFT JOIN compiles c USING (run_id, compile_id)
    WHERE run_id = $1 AND coalesce(c.phase, 'drive') = 'drive'
),
kernel AS (
    SELECT k.kernel_id, graph_id, k.name, k.backend, coalesce(c.calls, 0) AS calls, coalesce(groups, 0) AS groups,
        coalesce(ops, 0) AS ops, coalesce(kind, if(k.backend = 'extern', 'extern', NULL)) AS kind,
        coalesce(mean_read, k.bytes_read) AS bytes_read, coalesce(mean_written, k.bytes_written) AS bytes_written,
        moved, coalesce(c.flops, if(k.backend <> 'extern' OR c.calls = 1, k.flops, NULL)) AS flops, flop_dtypes,
        CASE WHEN k.backend = 'extern' AND c.calls > 0 THEN total_us / (c.calls * coalesce(times, 1))
            ELSE median_us END AS call_us,
        total_us, method,
        configs, decided, registers, spill_bytes, occupancy, occupancy_limit, position
    FROM (SELECT * FROM kernels WHERE run_id = $1) k JOIN driven USING (graph_id)
    LEFT JOIN called c USING (kernel_id) LEFT JOIN counted USING (kernel_id) LEFT JOIN worked USING (kernel_id)
    LEFT JOIN kinds USING (kernel_id) LEFT JOIN multiplied USING (kernel_id)
    LEFT JOIN spent USING (kernel_id) LEFT JOIN executed USING (graph_id)
    LEFT JOIN (
        SELECT kernel_id, configs, decided, registers, spill_bytes, occupancy, occupancy_limit FROM fullest
    ) USING (kernel_id)
    UNION ALL BY NAME
    SELECT name, 'operator' AS backend, calls, median_us AS call_us, total_us, method
    FROM timed WHERE kernel_id IS NULL
)
SELECT * EXCLUDE (position) FROM kernel
ORDER BY total_us DESC NULLS LAST, (bytes_read + bytes_written) * calls DESC NULLS LAST, position, kernel_id
"""

_CONFIGURATIONS = f"""
SELECT {", ".join(columns("kernel_configs"))} FROM kernel_configs
WHERE run_id = ? AND kernel_id = ? ORDER BY rowid
"""

_CODE = f"""
SELECT {", ".join(columns("kernel_code"))} FROM kernel_code WHERE run_id = ? AND kernel_id = ? ORDER BY rowid
"""

_GROUPED = f"""call AS (
    SELECT run_id, graph_id, position, unnest(group_ids) AS group_id
    FROM kernel_calls WHERE run_id = $1 AND kernel_id = $2
),
held AS (
    SELECT run_id, graph_id, call.position, unnest(members) AS ir_node
    FROM call JOIN fusion_groups USING (run_id, graph_id, group_id)
),
computed AS (
    SELECT DISTINCT run_id, graph_id, held.position, unnest({OWN_ORIGINS}) AS node
    FROM held JOIN ir_nodes USING (run_id, graph_id, ir_node)
)"""

_OPS = f"""
WITH {_GROUPED}
SELECT node, target, shape, dtype, file, line, source_text, module_path, recomputed
FROM graph_nodes SEMI JOIN computed USING (run_id, graph_id, node) ORDER BY position
"""

_CALLS = f"""
WITH {_GROUPED},
described AS (SELECT position, list(node ORDER BY node) AS ops FROM computed GROUP BY position)
SELECT c.position, step, line, trim(string_split(output_code, chr(10))[line]) AS text, group_ids,
    coalesce(ops, []) AS ops, grid
FROM kernel_calls c JOIN graphs USING (run_id, graph_id) LEFT JOIN described d ON d.position = c.position
WHERE run_id = $1 AND kernel_id = $2 ORDER BY c.position
"""

_NODES = """
SELECT kernel_id, members
FROM (SELECT run_id, graph_id, kernel_id, unnest(group_ids) AS group_id FROM kernel_calls)
JOIN fusion_groups USING (run_id, graph_id, group_id) WHERE run_id = $1 AND graph_id = $2
"""
