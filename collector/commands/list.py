"""List the recorded runs, newest first."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict

from fusionscope.collector.commands import DONE, add_store, answer, as_json, opened
from fusionscope.storage.queries.runs import RunSummary, library_runs
from fusionscope.storage.text import bytes_, change, count, ratio, table

HEAD = ("run", "name", "recorded (UTC)", "status", "speed-up", "kernels", "peak memory", "breaks", "recompiles")


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope list`."""
    add_store(parser)
    parser.add_argument("--project", help="only the runs of a project")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print a line per run."""
    library = opened(options.store)
    runs = [run for run in library.ask(library_runs) if options.project in (None, run.project)]
    if options.json:
        answer(as_json([asdict(run) | {"speed_up": run.speed_up} for run in runs]))
    else:
        answer(table(HEAD, map(_row, runs)) if runs else f"{library.store} holds no runs")
    return DONE


def _row(run: RunSummary) -> tuple[object, ...]:
    return (
        run.run_id,
        run.name,
        f"{run.created_at:%Y-%m-%d %H:%M}",
        run.status,
        ratio(run.speed_up),
        change(count(run.eager_kernels), count(run.compiled_kernels)),
        change(bytes_(run.eager_peak_bytes), bytes_(run.compiled_peak_bytes)),
        run.breaks,
        run.recompiles,
    )
