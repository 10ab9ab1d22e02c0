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
    tags: tuple[str, ...]
    created_at: datetime
    author: str | None
    status: str
    status_reason: str | None
    device_kind: str | None
    device_name: str | None
    threads: int | None
    torch_version: str | None
    mode: str | None
    options: str | None  # JSON: what the run was recorded with
    rank: int | None
    group_id: str | None  # shared by the ranks of one job
    git_commit: str | None
    archived: bool
    compiles: int
    breaks: int | None  # None where torch's trace, which tells of them, was not recorded
    recompiles: int | None
    graphs: int  # that reached Inductor
    kernel_calls: int | None  # calls in the emitted wrappers; None when no graph reached Inductor
    refusals: int | None  # pairs that were tested and not fused
    spill_bytes: int | None  # of every Triton kernel; 0 where there is none
    eager_us: float | None  # latency
    compiled_us: float | None
    eager_kernels: float | None  # kernels per call of the model
    compiled_kernels: float | None
    eager_peak_bytes: float | None
    compiled_peak_bytes: float | None
    plan_peak_bytes: int | None  # the largest of the plans
    within_noise: bool | None  # the 10–90 % intervals of both latencies overlap; None where one has none
    problems: int | None  # findings that failed and are no mere note
    worst: str | None  # title of the first of them
    verdict: str | None  # the latest on the run as a whole
    facts: int | None  # rows that were recorded

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
    return fetch(con, RunSummary, _SUMMARY.format(condition="deleted_at IS NULL"))


def run_summary(con: DuckDBPyConnection, run_id: str) -> RunSummary | None:
    """One run of the library; None where it holds none of that id."""
    return next(iter(fetch(con, RunSummary, _SUMMARY.format(condition="runs.run_id = ?"), [run_id])), None)


_SUMMARY = """
WITH verdicts AS (
    SELECT run_id, arg_max(verdict, created_at) AS verdict FROM notes
    WHERE act = 'note' AND anchor_kind = 'run' AND verdict IS NOT NULL
        AND note_id NOT IN (SELECT text FROM notes WHERE act = 'withdraw' AND text IS NOT NULL)
    GROUP BY run_id
)
SELECT runs.run_id, name, project, coalesce(tags, []) AS tags, created_at, author, status, status_reason, device_kind,
    device_name, threads, torch_version, mode, options, rank, group_id, git_commit, archived_at IS NOT NULL AS archived,
    coalesce(compiles, 0) AS compiles, breaks, recompiles, coalesce(graphs, 0) AS graphs, kernel_calls, refusals,
    spill_bytes, eager_us, compiled_us, eager_kernels, compiled_kernels, eager_peak_bytes, compiled_peak_bytes,
    plan_peak_bytes, within_noise, problems, worst, verdict, facts
FROM runs LEFT JOIN summaries USING (run_id) LEFT JOIN verdicts USING (run_id)
WHERE {condition} ORDER BY created_at DESC, runs.run_id
"""
