"""What each fusion group costs: the figures by which the graph can be coloured."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.call_times import RAN


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Figures of a group. Those of its kernel are shared by the groups that the kernel's call runs."""

    group_id: str
    time_us: float | None  # one call of its kernel: the median, of a library kernel this very call; see `costs`
    bytes: int | None  # read and written by its scheduler nodes, added up
    call_bytes: int | None  # by its kernel's call, each buffer once and whole
    registers: int | None  # a thread, of the chosen configuration, else of the one with the lowest occupancy
    spill_bytes: int | None
    occupancy: float | None
    peak_bytes: int | None  # its buffers that are alive at the peak of the plan; None without a plan
    peak_share: float | None  # of everything that the call holds at that step


def costs(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[GroupCost]:
    """Figures of every group of a graph, in schedule order.

    A library kernel is one kernel whatever its shapes, so the time of a group that it runs is read off the time line:
    its spans there follow the order of the calls. Where spans and calls do not pair off, no time is told.
    """
    return fetch(con, GroupCost, _COSTS, [run_id, graph_id])


_COSTS = f"""
WITH {RAN},
grouped AS (SELECT * FROM fusion_groups WHERE run_id = $1 AND graph_id = $2),
called AS (
    SELECT group_id, arg_min(kernel_id, position) AS kernel_id, min(position) AS call
    FROM (
        SELECT position, kernel_id, unnest(group_ids) AS group_id
        FROM kernel_calls WHERE run_id = $1 AND graph_id = $2
    )
    GROUP BY group_id
),
timed AS (
    SELECT kernel_id, min(median_us) AS median_us FROM kernel_timings JOIN kernels USING (run_id, kernel_id)
    WHERE run_id = $1 AND variant = 'compiled' AND (backend = 'extern' OR op IS NULL) GROUP BY kernel_id
),
fullest AS (
    SELECT kernel_id, registers, spill_bytes, occupancy FROM kernel_configs WHERE run_id = $1
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id
        ORDER BY coalesce(chosen, false) DESC, occupancy, registers DESC, spill_bytes DESC, config
    ) = 1
),
plan AS (SELECT step, live_bytes FROM memory_points WHERE run_id = $1 AND graph_id = $2 AND basis = 'plan'),
peak AS (SELECT min_by(step, (-live_bytes, step)) AS step FROM plan),
held AS (
    SELECT ir_node, sum(b.bytes)::BIGINT AS bytes FROM buffers b, peak
    WHERE run_id = $1 AND graph_id = $2 AND allocated_at <= step AND (freed_at IS NULL OR freed_at > step)
    GROUP BY ir_node
),
alive AS (
    SELECT group_id, sum(coalesce(held.bytes, 0))::BIGINT AS bytes, sum(bytes_read + bytes_written)::BIGINT AS moved
    FROM (SELECT group_id, unnest(members) AS ir_node FROM grouped) LEFT JOIN held USING (ir_node)
    LEFT JOIN (SELECT * FROM ir_nodes WHERE run_id = $1 AND graph_id = $2) USING (ir_node) GROUP BY group_id
)
SELECT group_id, CASE WHEN backend = 'extern' THEN ran.time_us ELSE median_us END AS time_us, alive.moved AS bytes,
    CASE WHEN backend = 'extern' THEN alive.moved ELSE k.bytes_read + k.bytes_written END AS call_bytes,
    registers, spill_bytes, occupancy,
    CASE WHEN peak.step IS NOT NULL THEN alive.bytes END AS peak_bytes,
    CASE WHEN peak.step IS NOT NULL THEN alive.bytes / nullif(sum(alive.bytes) OVER (), 0) END AS peak_share
FROM grouped LEFT JOIN called USING (group_id) LEFT JOIN ran ON (ran.graph_id, ran.position) = ($2, called.call)
LEFT JOIN timed USING (kernel_id) LEFT JOIN fullest USING (kernel_id)
LEFT JOIN alive USING (group_id)
LEFT JOIN (SELECT * FROM kernels WHERE run_id = $1) k USING (kernel_id), peak
ORDER BY grouped.position
"""
