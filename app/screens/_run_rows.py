"""Runs as lines of a table: filtered, folded into groups, each with the trend of its name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusionscope.app import style
from fusionscope.app.screens._notes import VERDICTS
from fusionscope.storage.queries.runs import RunSummary

FOLDS = ("ranks", "name", "nothing")
TREND = 12  # runs


@dataclass(frozen=True)
class Filters:
    """What the filters above the table let through; empty lets everything through."""

    words: str = ""
    projects: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    torches: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    archived: bool = False

    def let_through(self, run: RunSummary) -> bool:
        """Whether a run passes all of them."""
        choices = (
            (self.projects, run.project),
            (self.names, run.name),
            (self.devices, run.device),
            (self.torches, run.torch_version),
            (self.statuses, run.status),
        )
        return (
            (self.archived or not run.archived)
            and all(not chosen or value in chosen for chosen, value in choices)
            and (not self.tags or bool(set(self.tags).intersection(run.tags)))
            and (not self.words or self.words.lower() in _text(run))
        )


def _text(run: RunSummary) -> str:
    """What the search looks at."""
    said = (run.name, run.run_id, run.project, run.device, run.mode, run.torch_version, run.author, run.git_commit)
    return " ".join(filter(None, (*said, *run.tags, run.worst, run.verdict))).lower()


@dataclass(frozen=True)
class Line:
    """A run that stands for `count` runs."""

    run: RunSummary
    count: int


def folded(runs: Sequence[RunSummary], fold: str) -> list[Line]:
    """The ranks of a job as one line, or all runs of a name as their latest; `runs` come newest first."""
    if fold == "nothing":
        return [Line(run, 1) for run in runs]
    groups: dict[object, list[RunSummary]] = defaultdict(list)
    for run in runs:
        ranks = run.group_id or run.run_id
        groups[(run.name, run.project) if fold == "name" else ranks].append(run)
    return [
        Line(min(group, key=lambda run: run.rank or 0) if fold == "ranks" else group[0], len(group))
        for group in groups.values()
    ]


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


def row(line: Line, series: Series) -> dict[str, object]:
    """A line of the table; figures stay numbers so that they sort."""
    run = line.run
    latencies = series.get(_series(run), [])
    return {
        "run": run.name,
        "project": run.project,
        "runs": line.count,
        "device": style.short(run.device or style.MISSING, 22),
        "torch": run.torch_version,
        "mode": run.mode or "default",
        "speed-up": run.speed_up,
        "compiled": run.compiled_us,
        "trend": latencies if len(latencies) > 1 else None,
        "peak Δ": run.peak_delta,
        "kernels": run.compiled_kernels if run.compiled_kernels is not None else run.kernel_calls,
        "breaks": run.breaks,
        "recompiles": run.recompiles,
        "spills": run.spill_bytes,
        "worst finding": run.worst or ("" if run.problems is None else "none"),
        "verdict": VERDICTS.get(run.verdict or "", ""),
        "tags": ", ".join(run.tags),
        "status": run.status,
        "age": style.age(run.created_at),
    }


def unused(rows: Sequence[Mapping[str, object]]) -> set[str]:
    """Columns that would say nothing: empty throughout, or one run a line."""
    titles = ("project", "trend", "tags", "verdict", "speed-up", "compiled", "peak Δ")
    empty = {title for title in titles if not any(row[title] for row in rows)}
    return empty | ({"runs"} if all(row["runs"] == 1 for row in rows) else set())


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
