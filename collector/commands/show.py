"""Show what a run recorded: headline, graphs with kernels and peaks, breaks, recompiles, the hooks' coverage."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from duckdb import DuckDBPyConnection

from fusionscope.collector.commands import DONE, add_store, answer, as_json, opened
from fusionscope.storage.library import RunNotFound
from fusionscope.storage.queries import compare, compile, findings, fusion, graphs, memory, overview, runs
from fusionscope.storage.queries.fusion import FusionCounts
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.memory import Curve
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import Finding, GraphBreak, HookStatus, Measurement, Recompile
from fusionscope.storage.text import bytes_, change, count, microseconds, or_dash, ratio, table

EVIDENCE = 3  # lines of a finding


@dataclass(frozen=True, slots=True)
class Shown:
    """A run as `show` prints it."""

    run: RunSummary
    measurements: list[Measurement]
    graphs: list[DecidedGraph]
    counts: list[FusionCounts]  # of those graphs, one for one
    curves: list[Curve]  # of those graphs
    breaks: list[GraphBreak]
    recompiles: list[Recompile]
    hooks: list[HookStatus]
    findings: list[Finding]

    def peak(self, graph_id: str, basis: str) -> int | None:
        """The peak of a graph's timeline of one basis; None where none was recorded."""
        return next((c.peak_bytes for c in self.curves if (c.graph_id, c.basis) == (graph_id, basis)), None)


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope show`."""
    parser.add_argument("run", metavar="RUN", help="id of a run, the beginning of one, or a name (its latest run)")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print one run."""
    library = opened(options.store)
    shown = library.ask(shown_run, library.find(options.run))
    answer(as_json(asdict(shown)) if options.json else "\n\n".join(_sections(shown)))
    return DONE


def shown_run(con: DuckDBPyConnection, run_id: str) -> Shown:
    """Ask everything that `show` prints."""
    summary = runs.run_summary(con, run_id)
    if summary is None:
        raise RunNotFound(f"There is no run {run_id!r}.")
    decided = graphs.decided_graphs(con, run_id)
    curves = [curve for graph in decided for curve in memory.curves(con, run_id, graph.graph_id) if curve.graph_id]
    return Shown(
        run=summary,
        measurements=compare.measurements(con, run_id),
        graphs=decided,
        counts=[fusion.counts(con, run_id, graph.graph_id) for graph in decided],
        curves=curves,
        breaks=compile.breaks(con, run_id),
        recompiles=compile.recompiles(con, run_id),
        hooks=overview.hooks(con, run_id),
        findings=findings.findings(con, run_id),
    )


def _sections(shown: Shown) -> Iterator[str]:
    yield _headline(shown.run)
    if failed := [finding for finding in shown.findings if finding.status == "failed"]:
        yield "\n".join(map(_finding, failed))
    if shown.measurements:
        yield table(("measured", "variant", "median", "samples"), map(_measurement, shown.measurements))
    if shown.graphs:
        head = ("graph", "function", "nodes", "groups", "kernel calls", "plan, above entry", "Inductor's estimate")
        yield table(head, (_graph(shown, *pair) for pair in zip(shown.graphs, shown.counts, strict=True)))
    if shown.breaks:
        yield table(("graph break at", "why"), ((f"{b.file}:{b.line}", b.kind) for b in shown.breaks))
    if shown.recompiles:
        rows = ((r.compile_id, r.outcome, r.count, r.guard or r.reason) for r in shown.recompiles)
        yield table(("recompile", "outcome", "times", "guard that failed"), rows)
    hooks = ((h.hook, h.state, h.recorded, h.lost, h.reason or "") for h in shown.hooks)
    yield table(("hook", "state", "recorded", "lost", "why"), hooks)


def _headline(run: RunSummary) -> str:
    kernels = change(count(run.eager_kernels), count(run.compiled_kernels))
    peak = change(bytes_(run.eager_peak_bytes), bytes_(run.compiled_peak_bytes))
    facts = {
        "run": f"{run.run_id} ({run.name}), {run.created_at:%Y-%m-%d %H:%M} UTC",
        "status": run.status + (f": {run.status_reason}" if run.status_reason else ""),
        "device": f"{run.device or 'device unknown'}, torch {run.torch_version}",
        "speed-up": (ratio(run.speed_up) or "not measured") + (" (within noise)" if run.within_noise else ""),
        "kernels": kernels or "not measured",
        "peak": peak or "not measured",
        "graphs": f"{run.graphs} through Inductor, {or_dash(run.breaks)} breaks, {or_dash(run.recompiles)} recompiles",
    }
    return "\n".join(f"{name:9}{text}" for name, text in facts.items())


def _finding(finding: Finding) -> str:
    evidence = "".join(f"\n    {or_dash(fact)}" for fact in finding.evidence[:EVIDENCE])
    more = len(finding.evidence) - EVIDENCE
    rest = f"\n    and {more} more" if more > 0 else ""
    return f"{finding.severity}: {finding.title}. {finding.explanation}{evidence}{rest}\n    → {finding.action}"


def _measurement(row: Measurement) -> tuple[object, ...]:
    units = {"us": microseconds, "s": lambda s: microseconds(s * 1e6), "bytes": bytes_}
    return row.metric, row.variant, units.get(row.unit, count)(row.median), row.samples


def _graph(shown: Shown, graph: DecidedGraph, counts: FusionCounts) -> tuple[object, ...]:
    peaks = (bytes_(shown.peak(graph.graph_id, basis)) for basis in ("plan", "estimate"))
    return graph.graph_id, graph.function, counts.scheduler_nodes, counts.groups, counts.calls, *peaks
