"""How a model's figures went from run to run, and what changed where they stepped."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import style
from fusionscope.app.figures.trend import TrendPoint, trend_figure
from fusionscope.app.words import Metric
from fusionscope.storage.queries.runs import RunSummary

METRICS = {
    "compiled_us": Metric("Latency of a compiled call", "us"),
    "speed_up": Metric("Speed-up over eager", "count"),
    "compiled_peak_bytes": Metric("Measured peak, compiled", "bytes"),
    "plan_peak_bytes": Metric("Peak of the plan", "bytes"),
    "kernel_calls": Metric("Kernel calls in the emitted code", "count"),
    "breaks": Metric("Graph breaks", "count"),
    "recompiles": Metric("Recompiles", "count"),
    "refusals": Metric("Refused pairs", "count"),
    "spill_bytes": Metric("Spilled bytes", "bytes"),
    "problems": Metric("Problems found", "count"),
}
MOST = 500  # runs


def show_trend(runs: list[RunSummary]) -> None:
    """The picture for the one name that the filters leave; `runs` come newest first."""
    if len({(run.name, run.project) for run in runs}) != 1 or len(runs) < 2:
        return
    usable = {
        name: metric for name, metric in METRICS.items() if sum(getattr(run, name) is not None for run in runs) > 1
    }
    if not usable:
        return
    style.section("From run to run", "trend")
    name = st.selectbox(
        "Metric", list(usable), format_func=lambda key: usable[key].title, key="metric", bind="query-params", width=300
    )
    metric = usable[name]
    known = [run for run in reversed(runs[:MOST]) if getattr(run, name) is not None]
    divisor, unit = metric.scale(max(getattr(run, name) for run in known))
    points = [
        TrendPoint(
            run.run_id,
            run.created_at,
            getattr(run, name) / divisor,
            metric.form(getattr(run, name)),
            _changed(known[place - 1], run) if place else (),
            run.device or "unknown device",
        )
        for place, run in enumerate(known)
    ]
    st.plotly_chart(trend_figure(points, unit), config=style.PLOT, key=f"trend-{name}")
    style.note(
        f"{metric.title}, a dot per run in order of time; a large dot is a run with another torch, mode, commit or "
        "device than the one before it, which it names.",
        "trend",
    )


def _changed(before: RunSummary, after: RunSummary) -> tuple[str, ...]:
    facts = {
        "torch": (before.torch_version, after.torch_version),
        "mode": (before.mode or "default", after.mode or "default"),
        "commit": tuple(run.git_commit and run.git_commit[:10] for run in (before, after)),
        "device": (before.device, after.device),
    }
    return tuple(f"{what}: {old} → {new}" for what, (old, new) in facts.items() if old != new)
