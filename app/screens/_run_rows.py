"""Runs as lines of a table: folded into groups, each with the trend of its name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusionscope.app import style
from fusionscope.app.screens._notes import VERDICTS
from fusionscope.storage.queries.runs import RunSummary

TREND = 12  # runs
OWN = "run"  # the fold that folds nothing


@dataclass(frozen=True)
class Line:
    """Runs that share a line of the table, and the one of them whose figures it shows."""

    run: RunSummary
    runs: Sequence[RunSummary]


def _job(run: RunSummary) -> object:
    """The ranks of a job, or what was recorded under one `--group`."""
    return run.group_id or run.run_id


def _commit(run: RunSummary) -> object:
    """The same code in the same place: what differs is how it was compiled. Without a commit a run is by itself."""
    same = (run.name, run.project, run.git_commit, run.torch_version, run.device)
    return same if run.git_commit else run.run_id


def _name(run: RunSummary) -> object:
    return run.name, run.project


FOLDS: Mapping[str, Callable[[RunSummary], object]] = {
    "job": _job,
    "commit": _commit,
    "name": _name,
    OWN: lambda run: run.run_id,
}


def folded(runs: Iterable[RunSummary], fold: str) -> list[Line]:
    """Runs, newest first, as lines: a name stands for its latest run, other groups for rank 0 or else the fastest."""
    groups: dict[object, list[RunSummary]] = defaultdict(list)
    for run in runs:
        groups[FOLDS[fold](run)].append(run)
    newest = fold == "name"
    return [
        Line(group[0] if newest or len(group) == 1 else min(group, key=_precedence), group) for group in groups.values()
    ]


def _precedence(run: RunSummary) -> tuple[int, float]:
    return run.rank or 0, float("inf") if run.compiled_us is None else run.compiled_us


def unfolded(line: Line, fold: str) -> dict[str, list[str]]:
    """The filters that leave the runs of a line, each with a line of its own."""
    run = line.run
    same = {"name": run.name, "project": run.project}
    if fold == "commit":
        same |= {"commit": run.git_commit and run.git_commit[:10], "torch": run.torch_version, "device": run.device}
    asked = {"q": run.group_id} if fold == "job" else same
    return {"fold": [OWN]} | {key: [value] for key, value in asked.items() if value}


Series = Mapping[tuple[str, str | None, str | None], list[float]]


def trends(runs: Iterable[RunSummary]) -> Series:
    """Compiled latencies of the latest runs of a name, project and device, in order of time; `runs` newest first."""
    found: dict[tuple[str, str | None, str | None], list[float]] = defaultdict(list)
    for run in runs:
        series = found[_series(run)]
        if run.compiled_us is not None and len(series) < TREND:
            series.insert(0, run.compiled_us)
    return found


def _series(run: RunSummary) -> tuple[str, str | None, str | None]:
    return run.name, run.project, run.device


def compiled_with(run: RunSummary) -> str:
    """The mode and the options of torch.compile that the run was recorded with."""
    try:
        recorded = json.loads(run.options or "{}")
        options = [f"{key}={value}" for key, value in recorded.get("options", ())]
        dynamic = [f"dynamic={recorded['dynamic']}"] if "dynamic" in recorded else []
    except (ValueError, TypeError, AttributeError):  # a run from elsewhere may hold anything
        options, dynamic = [], []
    mode = [] if run.mode in (None, "default") and (options or dynamic) else [run.mode or "default"]
    return ", ".join((*mode, *dynamic, *options))


def row(line: Line, series: Series) -> dict[str, object]:
    """A line of the table; figures stay numbers so that they sort."""
    run = line.run
    latencies = series.get(_series(run), [])
    return {
        "run": run.name,
        "runs": len(line.runs),
        "status": "" if run.status == "complete" else run.status,
        "age": style.age(run.created_at),
        "verdict": VERDICTS.get(run.verdict or "", ""),
        "project": run.project,
        "device": style.short(run.device or style.MISSING, 22),
        "torch": run.torch_version,
        "mode": compiled_with(run),
        "speed-up": run.speed_up,
        "compiled": run.compiled_us,
        "trend": latencies if len(latencies) > 1 else None,
        "peak Δ": run.peak_delta,
        "kernels": run.compiled_kernels if run.compiled_kernels is not None else run.kernel_calls,
        "breaks": run.breaks,
        "recompiles": run.recompiles,
        "spills": run.spill_bytes,
        "worst finding": run.worst or ("" if run.problems is None else "none"),
        "tags": ", ".join(run.tags),
    }


def unused(rows: Sequence[Mapping[str, object]]) -> set[str]:
    """Columns that would say nothing: empty throughout, or the ordinary case on every line."""
    ordinary = {"runs": 1, "mode": "default", "spills": 0}
    return {title for title in rows[0] if all(row[title] in (None, "", ordinary.get(title)) for row in rows)}


def speed_colour(run: RunSummary) -> str | None:
    """A gain or a loss beyond the noise has a colour."""
    return None if run.speed_up is None or run.within_noise else style.gain_colour(run.speed_up > 1)


def peak_colour(run: RunSummary) -> str | None:
    """So has a change of the peak."""
    return style.gain_colour(run.peak_delta < 0) if run.peak_delta else None


FORMATS = {
    "speed-up": style.ratio,
    "compiled": style.duration,
    "peak Δ": style.size_change,
    "kernels": style.number,
    "breaks": style.number,
    "recompiles": style.number,
    "spills": style.size,
    "runs": style.number,
}
WIDTHS = {  # px; what is cut in a cell cannot be compared
    "run": 130,
    "runs": 50,
    "age": 66,
    "verdict": 88,
    "project": 76,
    "torch": 82,
    "speed-up": 68,
    "compiled": 68,
    "peak Δ": 70,
    "kernels": 58,
    "breaks": 52,
    "recompiles": 76,
    "spills": 62,
    "worst finding": 140,
}
