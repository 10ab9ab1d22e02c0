"""The library at a glance: one row per run with its headline numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run and its headline. Counts leave out what only measuring compiled (phase measure)."""

    run_id: str
    name: str
    project: str | None
    created_at: datetime
    status: str
    status_reason: str | None
    device_kind: str | None
    device_name: str | None
    threads: int | None
    torch_version: str | None
    mode: str | None
    compiles: int
    breaks: int | None  # None where torch's trace, which tells of them, was not recorded
    recompiles: int | None
    graphs: int  # that reached Inductor
    kernel_calls: int | None  # calls in the emitted wrappers; None when no graph reached Inductor
    eager_us: float | None  # latency
    compiled_us: float | None
    eager_kernels: float | None  # kernels per call of the model
    compiled_kernels: float | None
    eager_peak_bytes: float | None
    compiled_peak_bytes: float | None
    plan_peak_bytes: int | None  # the largest of the plans
    within_noise: bool | None  # the 10–90 % intervals of both latencies overlap; None where one has none

    @property
    def speed_up(self) -> float | None:
        """Median eager latency over median compiled latency; above 1 compiled is faster."""
        return self.eager_us / self.compiled_us if self.eager_us and self.compiled_us else None

    @property
    def peak_delta(self) -> float | None:
        """Bytes that compiling adds to the measured peak; negative when it saves some."""
        if self.eager_peak_bytes is None or self.compiled_peak_bytes is None:
            return None
        return self.compiled_peak_bytes - self.eager_peak_bytes

    @property
    def device(self) -> str | None:
        """The device by its own name, else its kind; a target is one that was not there."""
        return (
            f"{self.device_name} (not here)" if self.device_kind == "target" else self.device_name or self.device_kind
        )


def library_runs(con: DuckDBPyConnection) -> list[RunSummary]:
    """Every run that was not deleted, newest first."""
    return fetch(con, RunSummary, _SUMMARY, [])


_SUMMARY = """
WITH drive AS (SELECT run_id, compile_id FROM compiles WHERE phase = 'drive'),
made AS (SELECT run_id, count(*) AS n FROM drive GROUP BY run_id),
broken AS (SELECT run_id, count(*) AS n FROM graph_breaks SEMI JOIN drive USING (run_id, compile_id) GROUP BY run_id),
again AS (  -- one compilation may stand for several entries whose guards failed
    SELECT run_id, count(DISTINCT compile_id) AS n FROM recompiles SEMI JOIN drive USING (run_id, compile_id)
    WHERE outcome = 'done' GROUP BY run_id
),
untold AS (
    SELECT DISTINCT run_id FROM hook_status WHERE hook = 'trace_stream' AND state IN ('failed', 'unavailable')
),
lowered AS (
    SELECT run_id, count(*) AS n FROM graphs SEMI JOIN drive USING (run_id, compile_id)
    WHERE stage = 'post_grad' GROUP BY run_id
),
called AS (
    SELECT run_id, count(*) AS n FROM kernel_calls JOIN graphs USING (run_id, graph_id)
    SEMI JOIN drive USING (run_id, compile_id) GROUP BY run_id
),
measured AS (
    SELECT run_id,
        max(median) FILTER (variant = 'eager' AND metric = 'latency_us') AS eager_us,
        max(median) FILTER (variant = 'compiled' AND metric = 'latency_us') AS compiled_us,
        max(median) FILTER (variant = 'eager' AND metric = 'kernels') AS eager_kernels,
        max(median) FILTER (variant = 'compiled' AND metric = 'kernels') AS compiled_kernels,
        max(median) FILTER (variant = 'eager' AND metric = 'peak_bytes') AS eager_peak_bytes,
        max(median) FILTER (variant = 'compiled' AND metric = 'peak_bytes') AS compiled_peak_bytes
    FROM measurements GROUP BY run_id
),
planned AS (
    SELECT run_id, max(live_bytes) AS plan_peak_bytes FROM memory_points JOIN graphs USING (run_id, graph_id)
    SEMI JOIN drive USING (run_id, compile_id) WHERE basis = 'plan' GROUP BY run_id
),
noise AS (
    SELECT e.run_id, bool_or(e.p10 <= c.p90 AND c.p10 <= e.p90) AS within_noise
    FROM measurements e JOIN measurements c ON e.run_id = c.run_id AND e.metric = c.metric
    WHERE e.metric = 'latency_us' AND e.variant = 'eager' AND c.variant = 'compiled' GROUP BY e.run_id
)
SELECT runs.run_id, name, project, created_at, status, status_reason, device_kind, device_name, threads, torch_version,
    mode, coalesce(made.n, 0) AS compiles, if(untold.run_id IS NULL, coalesce(broken.n, 0), NULL) AS breaks,
    if(untold.run_id IS NULL, coalesce(again.n, 0), NULL) AS recompiles,
    coalesce(lowered.n, 0) AS graphs, called.n AS kernel_calls,
    eager_us, compiled_us, eager_kernels, compiled_kernels, eager_peak_bytes, compiled_peak_bytes,
    plan_peak_bytes, within_noise
FROM runs
LEFT JOIN made USING (run_id) LEFT JOIN broken USING (run_id) LEFT JOIN again USING (run_id)
LEFT JOIN untold USING (run_id) LEFT JOIN lowered USING (run_id) LEFT JOIN called USING (run_id)
LEFT JOIN measured USING (run_id) LEFT JOIN planned USING (run_id) LEFT JOIN noise USING (run_id)
WHERE deleted_at IS NULL
ORDER BY created_at DESC, runs.run_id
"""
