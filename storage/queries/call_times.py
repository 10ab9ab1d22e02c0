"""How long each call of a library kernel took: one kernel for many shapes has no time of its own.

The time line has a span for each kernel that ran in one step, in the order of the calls. A call runs one kernel, or
each of the same several (a product that is split, and its sum); where spans and calls do not pair off, nothing is told.
"""

from __future__ import annotations

from duckdb import DuckDBPyConnection

RAN = """library_call AS (
    SELECT c.*, row_number() OVER (PARTITION BY kernel_id ORDER BY c.position) AS nth,
        count(*) OVER (PARTITION BY kernel_id) AS calls
    FROM (SELECT graph_id, kernel_id, position FROM kernel_calls WHERE run_id = $1) c
    SEMI JOIN (SELECT kernel_id FROM kernels WHERE run_id = $1 AND backend = 'extern') USING (kernel_id)
),
span AS (
    SELECT kernel_id, end_us - start_us AS us, count(*) OVER (PARTITION BY kernel_id) AS spans,
        count(*) OVER (PARTITION BY kernel_id, name) AS of_name,
        row_number() OVER (PARTITION BY kernel_id ORDER BY start_us) AS nth,
        row_number() OVER (PARTITION BY kernel_id, name ORDER BY start_us) AS nth_of_name
    FROM timeline WHERE run_id = $1 AND variant = 'compiled' AND kernel_id IS NOT NULL AND lane = (
        SELECT min(lane) FROM timeline WHERE run_id = $1 AND variant = 'compiled'  -- device, or on a CPU host
    )
),
ran AS (
    SELECT graph_id, position, sum(us) AS time_us FROM library_call c JOIN span s USING (kernel_id)
    WHERE if(spans = calls, s.nth, nth_of_name) = c.nth AND (spans = calls OR of_name = calls)
    GROUP BY graph_id, position, spans, calls HAVING spans % calls = 0 AND count(*) = spans // calls
)"""


def library_calls(con: DuckDBPyConnection, run_id: str) -> dict[tuple[str, int], float]:
    """(Graph, position of the call) → µs in the step on the time line, of the calls for which it can be told."""
    found = con.execute(f"WITH {RAN} SELECT graph_id, position, time_us FROM ran", [run_id]).fetchall()
    return {(graph_id, position): us for graph_id, position, us in found}
