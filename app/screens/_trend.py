"""How a model's figures went from run to run, and what changed where they stepped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.trend import TrendPoint, trend_figure
from fusionscope.app.screens._run_rows import compiled_with, folded
from fusionscope.app.table import table
from fusionscope.app.words import Metric, arrow, metric_of
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.queries.trend import Reading, readings

COUNTED = {
    "plan_peak_bytes": Metric("Peak of the plan", "bytes"),
    "kernel_calls": Metric("Kernel calls in the emitted code", "count"),
    "graphs": Metric("Graphs that reached Inductor", "count"),
    "breaks": Metric("Graph breaks", "count"),
    "recompiles": Metric("Recompiles", "count"),
    "refusals": Metric("Refused pairs", "count"),
    "spill_bytes": Metric("Spilled bytes", "bytes"),
    "problems": Metric("Problems found", "count"),
}
FIRST = ("latency_us/compiled", "speed_up", "peak_bytes/compiled")  # in the list of metrics
MOST = 500  # runs
LISTED = 8  # steps
Interval = tuple[float, float]


@dataclass
class Series:
    """A metric and what it was, by run, with the 10–90 % intervals of those runs that have several samples."""

    metric: Metric
    values: dict[str, float] = field(default_factory=dict)
    intervals: dict[str, Interval] = field(default_factory=dict)

    def interval(self, run_id: str) -> Interval:
        """The interval of a run; its value where it has none."""
        return self.intervals.get(run_id, (self.values[run_id], self.values[run_id]))

    def moved(self, before: str, after: str) -> bool:
        """Whether two runs differ beyond the noise of their samples."""
        (a, b), (c, d) = self.interval(before), self.interval(after)
        return self.values[before] != self.values[after] and (b < c or d < a)


Step = tuple[RunSummary, RunSummary]  # the run before on the same device, and the run


def show_trend(runs: Sequence[RunSummary], fold: str) -> None:
    """The picture for the one name that the filters leave, a dot per line of `fold`; `runs` come newest first."""
    if len({(run.name, run.project) for run in runs}) != 1:
        style.note("Filter to one name to see how its figures went from run to run.", "trend")
        return
    recent = [line.run for line in folded(runs, fold)[:MOST]][::-1]
    usable = {name: series for name, series in every_series(recent).items() if len(series.values) > 1}
    if not usable:
        return
    style.section("From run to run", "trend")
    order = sorted(usable, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    name = st.selectbox(
        "Metric", order, format_func=lambda key: usable[key].metric.title, key="metric", bind="query-params", width=380
    )
    series = usable[name]
    known = [run for run in recent if run.run_id in series.values]
    _picture(known, series, name)
    _steps(known, series)


def every_series(runs: Sequence[RunSummary]) -> dict[str, Series]:
    """Every quantity that was counted or measured in the runs, by a name for the address."""
    found = {name: Series(metric) for name, metric in COUNTED.items()}
    for name, series in found.items():
        series.values |= {run.run_id: value for run in runs if (value := getattr(run, name)) is not None}
    measured = data.ask(readings, tuple(run.run_id for run in runs))
    for reading in measured:
        name = "/".join(filter(None, (reading.metric, reading.variant)))
        series = found.setdefault(name, Series(_named(reading)))
        series.values[reading.run_id] = reading.value
        if reading.p10 is not None and reading.p90 is not None:
            series.intervals[reading.run_id] = (reading.p10, reading.p90)
    return found | {"speed_up": speed_up(found)}


def _named(reading: Reading) -> Metric:
    metric = metric_of(reading.metric, reading.unit)
    return Metric(f"{metric.title}, {reading.variant}", metric.unit) if reading.variant else metric


def speed_up(found: Mapping[str, Series]) -> Series:
    """Median eager over median compiled latency; its interval is as wide as those of both latencies allow."""
    made = Series(Metric("Speed-up over eager", "count"))
    eager, compiled = (found.get(f"latency_us/{variant}", made) for variant in ("eager", "compiled"))
    for run_id in eager.values.keys() & compiled.values.keys():
        (a, b), (c, d) = eager.interval(run_id), compiled.interval(run_id)
        if c > 0:
            made.values[run_id] = eager.values[run_id] / compiled.values[run_id]
            made.intervals[run_id] = (a / d, b / c)
    return made


def pairs(runs: Iterable[RunSummary]) -> list[tuple[RunSummary | None, RunSummary]]:
    """Each run, the oldest first, after the run before it on the same device."""
    latest: dict[str | None, RunSummary] = {}
    found = []
    for run in runs:
        found.append((latest.get(run.device), run))
        latest[run.device] = run
    return found


def changed(before: RunSummary, after: RunSummary) -> tuple[str, ...]:
    """The circumstances in which a run differs from the one before."""
    facts = {
        "torch": (before.torch_version, after.torch_version),
        "commit": tuple(run.git_commit and run.git_commit[:10] for run in (before, after)),
        "compiled with": (compiled_with(before), compiled_with(after)),
        "threads": (before.threads, after.threads),
    }
    return tuple(f"{what} {old} → {new}" for what, (old, new) in facts.items() if old != new)


def _picture(runs: Sequence[RunSummary], series: Series, name: str) -> None:
    divisor, unit = series.metric.scale(max(series.values[run.run_id] for run in runs))
    points = [_point(before, run, series, divisor) for before, run in pairs(runs)]
    st.plotly_chart(trend_figure(points, unit), config=style.PLOT, key=f"trend-{name}")
    style.note(
        f"{series.metric.title}, a dot per run in order of time, with the 10–90 % interval of its samples where it has "
        "several. A large dot has another torch, commit, mode, options or threads than the run before it on its "
        "device; a new torch or commit is named below it.",
        "trend",
    )


def _point(before: RunSummary | None, run: RunSummary, series: Series, divisor: float) -> TrendPoint:
    value, (low, high) = series.values[run.run_id], series.interval(run.run_id)
    new_torch = before is None or before.torch_version != run.torch_version
    new_commit = before is None or before.git_commit != run.git_commit
    commit = run.git_commit[:7] if run.git_commit and new_commit else ""
    return TrendPoint(
        run.run_id,
        run.created_at,
        value / divisor,
        (low / divisor, high / divisor),
        series.metric.form(value),
        () if before is None else changed(before, run),
        (new_torch and run.torch_version) or commit,
        run.device or "unknown device",
    )


def _steps(runs: Sequence[RunSummary], series: Series) -> None:
    """The largest steps, each with what changed; a click leads to all that differs between the two runs."""
    steps = [(a, b) for a, b in pairs(runs) if a is not None and series.moved(a.run_id, b.run_id)]
    if not steps:
        style.note("It never moved beyond the noise of its samples.", "steps")
        return
    steps.sort(key=lambda step: _weight(step, series), reverse=True)
    clicked = table([_row(step, series) for step in steps[:LISTED]], key="steps", choose=True)
    style.note(
        f"The largest of {style.plural(len(steps), 'step')} beyond the noise; a figure of one sample has none. "
        "Click one for the decisions that differ.",
        "steps",
    )
    if clicked is not None:
        before, after = steps[clicked]
        st.switch_page("screens/diff.py", query_params={"run": after.run_id, "against": before.run_id})


def _weight(step: Step, series: Series) -> float:
    before, after = (series.values[run.run_id] for run in step)
    return abs(after - before) / max(abs(before), abs(after))


def _row(step: Step, series: Series) -> dict[str, str]:
    before, after = step
    old, new = (series.values[run.run_id] for run in step)
    return {
        "step": f"{after.created_at:%d %b %Y %H:%M}",
        "from → to": arrow(old, new, series.metric.form),
        "change": style.change(old, new),
        "what changed": ", ".join(changed(before, after)) or "not the torch, commit, options or threads",
        "device": after.device or style.MISSING,
    }
