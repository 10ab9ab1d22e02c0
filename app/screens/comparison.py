"""Eager vs compiled: where did the time go?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.comparison_bars import interval, variant_bars
from fusionscope.app.screens._costs import show_costs
from fusionscope.app.table import table
from fusionscope.app.words import METRICS, find, metric_of, speed, work
from fusionscope.storage.queries import compare
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import KernelTiming, Measurement

TOP = 12


def answer(run: RunSummary, measurements: list[Measurement]) -> str:
    """The sentence."""
    fast = speed(measurements) or speed(measurements, "wall_s")
    clauses = [fast or "Only one variant was measured", work(run)]
    return ", ".join(filter(None, clauses)) + "."


def bars(measurements: list[Measurement], metrics: list[str]) -> None:
    """A picture per metric, side by side."""
    for column, metric in zip(st.columns(max(3, len(metrics))), metrics, strict=False):
        of_metric = [m for m in measurements if m.metric == metric]
        shown = metric_of(metric, of_metric[0].unit)
        with column:
            style.section(shown.title, metric)
            st.plotly_chart(variant_bars(of_metric, shown), config=style.PLOT, key=f"bars-{metric}")


def median(measurement: Measurement | None) -> float | None:
    """The median, where there is a measurement."""
    return measurement.median if measurement else None


def row(measurements: list[Measurement], metric: str) -> dict[str, str]:
    """One metric, the two variants side by side."""
    eager, compiled = find(measurements, metric, "eager"), find(measurements, metric, "compiled")
    shown = metric_of(metric, next(m.unit for m in (eager, compiled) if m))
    form = shown.form
    return {
        "quantity": shown.title,
        "eager": form(median(eager)),
        "eager p10 – p90": interval(eager, shown) if eager else style.MISSING,
        "compiled": form(median(compiled)),
        "compiled p10 – p90": interval(compiled, shown) if compiled else style.MISSING,
        "change": style.change(median(eager), median(compiled)),
        "samples": " / ".join(style.number(m.samples) if m else style.MISSING for m in (eager, compiled)),
    }


def methods(measurements: list[Measurement]) -> list[str]:
    """How each quantity was measured, in a line; said once where both variants were measured alike."""
    variants: dict[tuple[str, str], list[str]] = {}
    for m in measurements:
        variants.setdefault((metric_of(m.metric, m.unit).title, m.method), []).append(m.variant)
    how = [f"{title}, {' and '.join(names)}: {method}." for (title, method), names in variants.items()]
    lost = [(metric_of(m.metric, m.unit).title, m) for m in measurements if m.discarded]
    return how + [
        f"{title}, {m.variant}: {m.discarded} thrown away, {m.reason or 'without reason'}." for title, m in lost
    ]


def timings(title: str, rows: list[KernelTiming], total_us: float | None) -> None:
    """What took longest in one variant."""
    style.section(title, title)
    if not rows:
        style.not_recorded("this variant has no timing of single kernels or operators", f"timings-{title}")
        return
    listed = [
        {
            "kernel or operator": style.short(t.name, 40),
            "calls": t.calls,
            "one call": t.median_us,
            "per model call": t.total_us,
            "share": t.total_us / total_us if total_us else None,
        }
        for t in rows[:TOP]
    ]
    formats = {
        "calls": style.number,
        "one call": style.duration,
        "per model call": style.duration,
        "share": style.percent,
    }
    names = {"kernel or operator": st.column_config.TextColumn(width=260)}
    table(listed, formats, key=f"timings-table-{title}", config=names)
    rest = f"; {style.plural(len(rows) - TOP, 'more row')} not shown" if len(rows) > TOP else ""
    style.note(f"{'; '.join(sorted({t.method for t in rows}))}. Share is of the sum of all rows{rest}.", f"how-{title}")


run = data.current_run()
measurements = data.ask(compare.measurements, run.run_id)
style.heading("Eager vs compiled", style.about(run))
if not measurements:
    style.sentence("Nothing was measured in this run, so compiled cannot be compared with eager.")
    if run.device_kind == "target":
        style.not_recorded(data.why_missing(run, "measure"))
        st.stop()
    style.not_recorded(run.status_reason or "the run was recorded without measuring")
    style.note("Either command measures both:", "commands")
    st.code("fusionscope record FILE.py\nfusionscope run --compare SCRIPT.py", language="bash", width=420)
    st.stop()

style.sentence(answer(run, measurements))
present = [metric for metric in METRICS if any(m.metric == metric for m in measurements)]
others = sorted({m.metric for m in measurements} - set(METRICS))
bars(measurements, [metric for metric in present if METRICS[metric].pictured])
style.note("Bars are medians from zero; whiskers run from the 10th to the 90th percentile of the samples.", "bars")
rows = [row(measurements, metric) for metric in present + others]
table(rows, key="measurements", config=style.right(rows[0]))

show_costs(run.run_id)
left, right = st.columns(2)
for column, variant in ((left, "eager"), (right, "compiled")):
    timed = data.ask(compare.timings, run.run_id, variant)
    with column:
        timings(f"Longest in {variant}", timed, sum(t.total_us for t in timed) or None)

style.section("How each number was measured", "methods")
table(
    [
        {
            "quantity": metric_of(m.metric, m.unit).title,
            "variant": m.variant,
            "median": m.median,
            "p10": m.p10,
            "p90": m.p90,
            "unit": m.unit,
            "samples": m.samples,
            "thrown away": m.discarded,
        }
        for m in measurements
    ],
    dict.fromkeys(("median", "p10", "p90"), "{:,.10g}".format),
    key="methods",
)
style.note("\n".join(methods(measurements)), "methods")
