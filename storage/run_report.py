"""A run in sections of words, for those who have no library: no code, no folders, no host."""

from __future__ import annotations

from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries import compare, compile, findings, fusion, graphs, kernels, memory, notes, runs
from fusionscope.storage.report import Section, described, form_of
from fusionscope.storage.text import bytes_, count, microseconds, ratio

KERNELS = 30


def run_sections(con: DuckDBPyConnection, run_id: str) -> list[Section]:
    """What the screens of a run open on; empty where there is no such run."""
    run = runs.run_summary(con, run_id)
    if run is None:
        return []
    speed = f"{ratio(run.speed_up)} the speed of eager" if run.speed_up else "not measured against eager"
    noise = ", within the noise" if run.within_noise else ""
    head = Section(run.name, f"{described(run)}. {speed}{noise}.")
    return [head, *(section for section in _parts(con, run_id) if section.rows)]


def _parts(con: DuckDBPyConnection, run_id: str) -> Iterator[Section]:
    found = [f for f in findings.findings(con, run_id) if f.status == "failed"]
    rows = tuple((f.severity, f.title, f.explanation, "\n".join(f.evidence[:4]), f.action) for f in found)
    yield Section("Findings", f"{len(found)} rules failed.", ("", "rule", "why", "evidence", "what to do"), rows)
    measured = tuple(
        (m.metric, m.variant, form_of(m.unit)(m.median), form_of(m.unit)(m.p10), form_of(m.unit)(m.p90), m.method)
        for m in compare.measurements(con, run_id)
    )
    yield Section("Measured", "Medians.", ("quantity", "variant", "median", "10 %", "90 %", "method"), measured)
    yield Section("Graphs", "What Inductor compiled.", _GRAPH, tuple(_graphs(con, run_id)))
    heavy = tuple(
        (k.name, k.backend, count(k.calls), microseconds(k.total_us), bytes_(k.bytes_read), bytes_(k.bytes_written))
        for k in kernels.kernels(con, run_id)[:KERNELS]
    )
    yield Section("Kernels", f"The {len(heavy)} heaviest.", _KERNEL, heavy)
    broken = tuple(
        (f"{_last(b.file)}:{b.line}", b.kind, b.reason, count(b.executions)) for b in compile.breaks(con, run_id)
    )
    yield Section("Graph breaks", "Where tracing stopped.", ("at", "kind", "why", "ran"), broken)
    again = tuple((r.compile_id, r.outcome, r.guard or r.reason) for r in compile.recompiles(con, run_id))
    yield Section("Recompiles", "Guards that failed.", ("compile", "outcome", "guard"), again)
    said = tuple((n.author, n.verdict, n.label, n.text) for n in notes.pinned(con, run_id))
    yield Section("Notes", "What was said of this run and earlier ones.", ("by", "verdict", "about", "note"), said)


def _graphs(con: DuckDBPyConnection, run_id: str) -> Iterator[tuple[object, ...]]:
    for graph in graphs.decided_graphs(con, run_id):
        counted = fusion.counts(con, run_id, graph.graph_id)
        plan = [c.peak_bytes for c in memory.curves(con, run_id, graph.graph_id) if c.graph_id and c.basis == "plan"]
        peak = bytes_(max(plan, default=None))
        yield (
            graph.graph_id,
            graph.function,
            counted.scheduler_nodes,
            counted.groups,
            counted.calls,
            counted.refused,
            peak,
        )


def _last(file: str | None) -> str:
    return (file or "unknown file").replace("\\", "/").rpartition("/")[2]


_GRAPH = ("graph", "function", "scheduler nodes", "groups", "kernel calls", "refused pairs", "peak of the plan")
_KERNEL = ("kernel", "backend", "calls", "time per call of the model", "reads", "writes")
