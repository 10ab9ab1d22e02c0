"""Eager vs compiled: where did the time go?"""

from __future__ import annotations

import re
from collections.abc import Iterator

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.comparison_bars import interval, variant_bars
from fusionscope.app.screens import _launching
from fusionscope.app.screens._costs import show_costs
from fusionscope.app.table import table
from fusionscope.app.words import METRICS, find, headline, metric_of
from fusionscope.storage.queries import compare, compile, overview
from fusionscope.storage.records import KernelTiming, Measurement

TOP = 12
_CUTLASS = re.compile(r"^cutlass::\w+<(\w+).*")  # one function for all: the type tells which


def bars(measurements: list[Measurement], metrics: list[str]) -> None:
    """A picture per metric, side by side."""
    for column, metric in zip(st.columns(max(3, len(metrics))), metrics, strict=False):
        of_metric = [m for m in measurements if m.metric == metric]
        shown = metric_of(metric, of_metric[0].unit)
        with column:
            style.section(shown.title, metric)
            st.plotly_chart(variant_bars(of_metric, shown), config=style.PLOT, key=f"bars-{metric}")


def variants_table(measurements: list[Measurement]) -> None:
    """Every quantity beside that of the other variants; a row of its own says how far latencies spread."""
    variants = sorted({m.variant for m in measurements}, key=lambda name: (name != "eager", name != "compiled", name))
    present = [*METRICS, *sorted({m.metric for m in measurements} - set(METRICS))]
    rows = [row for metric in present for row in quantity(measurements, metric, variants)]
    table(rows, key="variants", config=style.right(["quantity", *variants]))
    without = [v for v in variants if not find(measurements, "bytes_moved", v)]
    if without and len(without) < len(variants):
        style.note(
            f"Bytes moved by a call are not recorded of {' and '.join(without)}: eager's operators and the recorded "
            "calls of kernels are counted; TorchScript records none, a replayed CUDA graph names none.",
            "bytes-moved",
        )


def quantity(measurements: list[Measurement], metric: str, variants: list[str]) -> Iterator[dict[str, str]]:
    """The row of one metric, and what explains it; none where no variant has it."""
    found = {variant: find(measurements, metric, variant) for variant in variants}
    known = {variant: m for variant, m in found.items() if m}
    if not known:
        return
    shown = metric_of(metric, next(iter(known.values())).unit)
    none = {"eager": "" if not shown.of_eager else style.MISSING}
    medians = {v: shown.form(m.median) if m else none.get(v, style.MISSING) for v, m in found.items()}
    yield {"quantity": shown.title} | medians
    if shown.pictured and any(m.p10 is not None for m in known.values()):
        spread = {v: interval(m, shown) if m else style.MISSING for v, m in found.items()}
        yield {"quantity": "   10th – 90th percentile"} | spread
    eager = known.get("eager")
    if shown.pictured and eager and len(known) > 1:
        against = {v: style.change(eager.median, m.median) if m and v != "eager" else "" for v, m in found.items()}
        yield {"quantity": "   against eager"} | against


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


def called(timing: KernelTiming) -> str:
    """A kernel of C++ by the operator that it is for and its name without types; others by their name."""
    kernel = timing.name.removeprefix("void ").replace("(anonymous namespace)::", "").partition("(")[0]
    kernel = _CUTLASS.sub(r"\1", kernel).partition("<")[0].rpartition("::")[2]
    op = (timing.op or "").removeprefix("aten::")
    own = kernel if "(" in timing.name else timing.name
    return own if re.search(rf"\b{re.escape(op)}\b", own) else f"{op} · {own}"


def timings(title: str, rows: list[KernelTiming], total_us: float | None) -> None:
    """What took longest in one variant."""
    style.section(title, title)
    if not rows:
        style.not_recorded("this variant has no timing of single kernels or operators", f"timings-{title}")
        return
    listed = [
        {
            "kernel or operator": style.short(called(t), 40),
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

style.sentence(headline(run, measurements, data.ask(compile.compiles, run.run_id)))
present = [metric for metric in METRICS if any(m.metric == metric for m in measurements)]
bars(measurements, [metric for metric in present if METRICS[metric].pictured])
style.note("Bars are medians from zero; whiskers run from the 10th to the 90th percentile of the samples.", "bars")
style.section("Variants", "variants")
variants_table(measurements)
if status := next((h for h in data.ask(overview.hooks, run.run_id) if h.hook == "measure" and h.reason), None):
    style.note(f"Not recorded: {status.reason}.", "variants")

show_costs(run.run_id)
_launching.time_lines(run)
left, right = st.columns(2)
for column, variant in ((left, "eager"), (right, "compiled")):
    timed = data.ask(compare.timings, run.run_id, variant)
    with column:
        timings(f"Longest in {variant}", timed, sum(t.total_us for t in timed) or None)

with st.expander("How each number was measured"):
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
