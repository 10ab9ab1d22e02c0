"""The headline of a run, worked out once when it is imported: a list of thousands of runs reads only these."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage import schema
from fusionscope.storage.records import TABLES

CONCLUSIONS = ("findings", "op_costs", "notes", "summaries")  # everything else was recorded


def write(con: DuckDBPyConnection, run_id: str) -> None:
    """Put a run's headline beside its facts and findings, in place of what another version made of them."""
    with schema.transaction(con):
        con.execute("DELETE FROM summaries WHERE run_id = ?", [run_id])
        con.execute(f"INSERT INTO summaries BY NAME {_SUMMARY}", [run_id])


_FACTS = " UNION ALL ".join(
    f"SELECT count(*) AS n FROM {table} WHERE run_id = $1" for table in TABLES if table not in CONCLUSIONS
)

# The fullest configuration stands for an undecided kernel, as on the screen of the kernels (queries/kernels.py).
_SUMMARY = f"""
WITH drive AS (SELECT compile_id FROM compiles WHERE run_id = $1 AND phase = 'drive'),
graph AS (SELECT * FROM graphs WHERE run_id = $1 AND compile_id IN (FROM drive)),
told AS (
    SELECT count(*) = 0 AS of_breaks FROM hook_status
    WHERE run_id = $1 AND hook = 'trace_stream' AND state IN ('failed', 'unavailable')
),
measured AS (SELECT * FROM measurements WHERE run_id = $1),
config AS (
    SELECT kernel_id, spill_bytes FROM kernel_configs WHERE run_id = $1 QUALIFY row_number() OVER (
        PARTITION BY kernel_id
        ORDER BY coalesce(chosen, false) DESC, occupancy, registers DESC, spill_bytes DESC, config
    ) = 1
),
triton AS (
    SELECT k.kernel_id, spill_bytes
    FROM kernels k JOIN graph USING (run_id, graph_id) LEFT JOIN config USING (kernel_id)
    WHERE k.run_id = $1 AND k.backend IN ('triton', 'template', 'user')
),
failed AS (
    SELECT title, row_number() OVER () AS place FROM findings
    WHERE run_id = $1 AND status = 'failed' AND severity = 'problem'
)
SELECT $1 AS run_id, (SELECT count(*) FROM drive) AS compiles,
    (SELECT count(*) FROM graph_breaks, told WHERE run_id = $1 AND compile_id IN (FROM drive)
        HAVING (SELECT of_breaks FROM told)) AS breaks,
    (SELECT count(DISTINCT compile_id) FROM recompiles  -- one compilation may stand for several whose guards failed
        WHERE run_id = $1 AND compile_id IN (FROM drive) AND outcome = 'done'
        HAVING (SELECT of_breaks FROM told)) AS recompiles,
    (SELECT count(*) FROM graph WHERE stage = 'post_grad') AS graphs,
    (SELECT count(*) FROM kernel_calls JOIN graph USING (run_id, graph_id) WHERE run_id = $1
        HAVING count(*) > 0) AS kernel_calls,
    (SELECT count(DISTINCT (graph_id, a, b)) FROM fusion_decisions JOIN graph USING (run_id, graph_id)
        WHERE run_id = $1 AND verdict = 'refused') AS refusals,
    (SELECT coalesce(sum(spill_bytes), 0) FROM triton HAVING count(*) = count(spill_bytes)) AS spill_bytes,
    max(median) FILTER (variant = 'eager' AND metric = 'latency_us') AS eager_us,
    max(median) FILTER (variant = 'compiled' AND metric = 'latency_us') AS compiled_us,
    max(median) FILTER (variant = 'eager' AND metric = 'kernels') AS eager_kernels,
    max(median) FILTER (variant = 'compiled' AND metric = 'kernels') AS compiled_kernels,
    max(median) FILTER (variant = 'eager' AND metric = 'peak_bytes') AS eager_peak_bytes,
    max(median) FILTER (variant = 'compiled' AND metric = 'peak_bytes') AS compiled_peak_bytes,
    (SELECT max(live_bytes) FROM memory_points JOIN graph USING (run_id, graph_id)
        WHERE run_id = $1 AND basis = 'plan') AS plan_peak_bytes,
    (SELECT bool_or(e.p10 <= c.p90 AND c.p10 <= e.p90) FROM measured e, measured c
        WHERE e.metric = 'latency_us' AND c.metric = 'latency_us' AND e.variant = 'eager' AND c.variant = 'compiled'
    ) AS within_noise,
    (SELECT count(*) FROM failed) AS problems, (SELECT title FROM failed ORDER BY place LIMIT 1) AS worst,
    (SELECT sum(n)::BIGINT FROM ({_FACTS})) AS facts
FROM measured
"""
