"""How many bytes one call of each compiled variant moves, by what was recorded of its kernel calls."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.records import Measurement

_METHOD = (
    "sum over the kernel calls of the graphs that a step runs: each buffer that a call reads or writes counts once, by "
    "shape and dtype; not counted: operators between graphs, what a kernel reads again or spills, what a cache saves"
)


def moved(con: DuckDBPyConnection, run_id: str) -> list[Measurement]:
    """The variants of which it is known for every kernel call; not where a CUDA graph is replayed, which names none."""
    return fetch(con, Measurement, _MOVED, [run_id, _METHOD])


# Of a generated kernel a call reads no more than whole buffers, nor more than its scheduler nodes access; a library's
# kernel has other shapes in each call. How often a step runs a graph: launches of its kernels over calls in its code.
_MOVED = """
WITH call AS (SELECT graph_id, position, kernel_id, group_ids FROM kernel_calls WHERE run_id = $1),
member AS (
    SELECT graph_id, c.position, c.kernel_id, unnest(g.members) AS ir_node
    FROM (SELECT graph_id, position, kernel_id, unnest(group_ids) AS group_id FROM call) c
    JOIN (SELECT graph_id, group_id, members FROM fusion_groups WHERE run_id = $1) g USING (graph_id, group_id)
),
accessed AS (
    SELECT graph_id, m.position, kernel_id, sum(n.bytes_read) AS reads, sum(n.bytes_written) AS writes
    FROM member m JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) n USING (graph_id, ir_node) GROUP BY ALL
    HAVING count(n.bytes_read) = count(*) AND count(n.bytes_written) = count(*)
),
kernel AS (SELECT kernel_id, backend, bytes_read, bytes_written FROM kernels WHERE run_id = $1),
weighed AS (
    SELECT graph_id, CASE WHEN backend = 'extern' THEN reads + writes
        ELSE least(bytes_read, reads) + least(bytes_written, writes) END AS bytes
    FROM call LEFT JOIN accessed USING (graph_id, position, kernel_id) LEFT JOIN kernel USING (kernel_id)
),
graph AS (
    SELECT graph_id, CASE WHEN count(bytes) = count(*) THEN sum(bytes) END AS bytes FROM weighed GROUP BY graph_id
),
written AS (SELECT graph_id, kernel_id, count(*) AS calls FROM call GROUP BY ALL),
timed AS (SELECT variant, kernel_id, op, calls FROM kernel_timings WHERE run_id = $1 AND variant <> 'eager'),
ran AS (
    SELECT variant, graph_id, greatest(1, round(max(timed.calls / written.calls))) AS turns
    FROM timed JOIN kernel USING (kernel_id) JOIN written USING (kernel_id)
    WHERE backend = 'extern' OR op IS NULL GROUP BY ALL
)
SELECT variant, 'bytes_moved' AS metric, sum(turns * bytes)::DOUBLE AS median, 1 AS samples, 'bytes' AS unit,
    $2 AS method
FROM ran LEFT JOIN graph USING (graph_id)
GROUP BY variant
HAVING count(bytes) = count(*)
    AND variant NOT IN (SELECT variant FROM timed WHERE kernel_id IS NULL AND op IS NULL)
"""
