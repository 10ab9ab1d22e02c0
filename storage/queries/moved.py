"""How many bytes one call of each compiled variant moves, by what was recorded of its kernel calls."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.records import Measurement

_METHOD = (
    "sum over the kernel calls of the graphs that a step runs: each buffer that a call reads or writes counts once, of "
    "one that is indexed the part that is; not counted: operators between graphs, what a kernel reads again or spills, "
    "what a cache saves"
)


def moved(con: DuckDBPyConnection, run_id: str) -> list[Measurement]:
    """The variants of which it is known for every kernel call; not where a CUDA graph is replayed, which names none."""
    return fetch(con, Measurement, _MOVED, [run_id, _METHOD])


# How often a step runs a graph: launches of its kernels over their calls in its code, of a library by the commonest.
_MOVED = """
WITH call AS (SELECT graph_id, kernel_id, moved FROM kernel_calls WHERE run_id = $1),
graph AS (SELECT graph_id, CASE WHEN count(moved) = count(*) THEN sum(moved) END AS bytes FROM call GROUP BY graph_id),
written AS (SELECT graph_id, kernel_id, count(*) AS calls FROM call GROUP BY ALL),
timed AS (SELECT variant, kernel_id, op, calls FROM kernel_timings WHERE run_id = $1 AND variant <> 'eager'),
ran AS (
    SELECT variant, w.graph_id, greatest(1, round(max(timed.calls / w.calls))) AS turns
    FROM timed JOIN (SELECT kernel_id, backend FROM kernels WHERE run_id = $1) USING (kernel_id)
    JOIN written w USING (kernel_id)
    WHERE backend = 'extern' OR op IS NULL GROUP BY ALL
)
SELECT variant, 'bytes_moved' AS metric, sum(turns * bytes)::DOUBLE AS median, 1 AS samples, 'bytes' AS unit,
    $2 AS method
FROM ran LEFT JOIN graph USING (graph_id)
GROUP BY variant
HAVING count(bytes) = count(*)
    AND variant NOT IN (SELECT variant FROM timed WHERE kernel_id IS NULL AND op IS NULL)
"""
