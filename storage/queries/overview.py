"""What one run says about itself: its own facts, its coverage and the time its compiles took."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.records import Compile, CompilePhase, HookStatus, Run


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
    """Seconds spent compiling for the program's own calls; None when no compile was timed.

    The union of the intervals of compiles and their phases: a backward graph is compiled later than its frame.
    """
    own = [c for c in records_of(con, Compile, run_id) if c.phase == "drive"]
    ids = {c.compile_id for c in own}
    phases = [p for p in records_of(con, CompilePhase, run_id) if p.compile_id in ids]
    spans = [(p.start_s, p.start_s + p.duration_s) for p in phases]
    spans += [(c.start_s, c.start_s + c.duration_s) for c in own if c.start_s is not None and c.duration_s is not None]
    return _covered(spans) if spans else None


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals: nested and parallel ones count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
