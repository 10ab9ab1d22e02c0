"""What one run says about itself: its own facts, its coverage and the time its compiles took."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import HookStatus, Run


def run(con: DuckDBPyConnection, run_id: str) -> Run:
    """The run's own record."""
    return records_of(con, Run, run_id)[0]


def tagged(con: DuckDBPyConnection, tag: str) -> frozenset[str]:
    """Ids of the runs that bear a tag."""
    rows = con.execute("SELECT run_id FROM runs WHERE list_contains(tags, ?)", [tag]).fetchall()
    return frozenset(row[0] for row in rows)


def hooks(con: DuckDBPyConnection, run_id: str) -> list[HookStatus]:
    """The coverage statement: what needs attention first, then by name."""
    order = {"failed": 0, "unavailable": 1, "partial": 2, "recorded": 3}
    return sorted(records_of(con, HookStatus, run_id), key=lambda h: (order.get(h.state, 0), h.hook))


def compile_seconds(con: DuckDBPyConnection, run_id: str) -> float | None:
    """Seconds spent compiling for the program's own calls; None when no compile was timed."""
    found = con.execute(COMPILE_SECONDS, [[run_id]]).fetchone()
    return None if found is None else found[1]


# Of each run of a list, the length of the union of the intervals of compiles and their phases: phases lie within each
# other and beside each other, and a backward graph is compiled later than its frame.
COMPILE_SECONDS = """
WITH own AS (SELECT * FROM compiles WHERE run_id IN (SELECT unnest($1)) AND phase = 'drive'),
spans AS (
    SELECT run_id, start_s, start_s + duration_s AS end_s FROM own WHERE start_s + duration_s IS NOT NULL
    UNION ALL
    SELECT run_id, p.start_s, p.start_s + p.duration_s FROM compile_phases p JOIN own USING (run_id, compile_id)
),
reaching AS (
    SELECT *, max(end_s) OVER (
        PARTITION BY run_id ORDER BY start_s, end_s ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS reached
    FROM spans
)
SELECT run_id, sum(greatest(0, end_s - greatest(start_s, coalesce(reached, start_s)))) AS seconds
FROM reaching GROUP BY run_id
"""
