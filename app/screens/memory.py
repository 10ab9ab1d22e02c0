"""Memory: what is alive at the peak, and why?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import curve_figure
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._graph import choose_graph, tell_origin
from fusionscope.app.screens._plan import by_size, exact, plan_part
from fusionscope.app.table import table
from fusionscope.storage.queries import graphs, memory
from fusionscope.storage.queries.memory import Curve, Lifetime, MeasuredPeak
from fusionscope.storage.queries.runs import RunSummary

UNMEASURED = "the run was not measured"
CURVES = (  # basis, variant, title, x axis
    ("estimate", "compiled", "Inductor's estimate", "scheduler step"),
    ("measured", "compiled", "Measured, compiled", "allocation event of the call"),
    ("measured", "eager", "Measured, eager", "allocation event of the call"),
)


def find(curves: Sequence[Curve], basis: str, variant: str) -> Curve | None:
    """The curve of this graph, else the one of the whole call."""
    return next((curve for curve in curves if (curve.basis, curve.variant) == (basis, variant)), None)


def opening(plan: Curve, lifetimes: list[Lifetime], measured: MeasuredPeak | None) -> str:
    """The sentence of the screen. `measured`: the compiled peak, where it is of the same call."""
    alive = by_size(life for life in lifetimes if life.alive_at(plan.peak_step) and not life.at_entry)
    count = f"{style.plural(len(alive), 'buffer')} of the call {'is' if len(alive) == 1 else 'are'} alive"
    largest = f", the largest {_told(alive[0])}" if alive and alive[0].bytes else ""
    peak = f"The plan peaks at {style.size(plan.peak_bytes)} at step {plan.peak_step} of {plan.points}"
    return "; ".join([peak, count + largest, *([_compared(plan, measured)] if measured else [])]) + "."


def _told(life: Lifetime) -> str:
    """`buf5 (2 MiB, relu_2, mlp.py:27)`."""
    source = style.source_line(life.file, life.line) if life.file else None
    return f"{life.buffer} ({', '.join(filter(None, (style.size(life.bytes), *life.ops[:1], source)))})"


def _compared(plan: Curve, measured: MeasuredPeak) -> str:
    if measured.bytes == plan.peak_bytes:
        return "the measured peak is the same to the byte"
    return f"the measured peak differs by {style.size_delta(plan.peak_bytes, measured.bytes)}"


def number(label: str, value: float | None, remark: str, reason: str) -> None:
    """A peak under its own name, or why there is none."""
    with st.container(key=f"figure-{label}", border=True, width="stretch"):
        st.text(label)
        st.text(style.size(value))
        st.text(f"{exact(value)} · {remark}" if value is not None else f"not recorded: {reason}")


def numbers(run: RunSummary, curves: list[Curve], measured: dict[str, MeasuredPeak]) -> None:
    """Four peaks that are four different numbers."""
    estimate, plan = find(curves, "estimate", "compiled"), find(curves, "plan", "compiled")
    with st.container(horizontal=True, gap="small"):
        remark = f"scheduler step {estimate.peak_step} of {estimate.points}" if estimate else ""
        peak_estimated = estimate.peak_bytes if estimate else None
        number("Inductor's estimate", peak_estimated, remark, data.why_missing(run, "inductor_graph"))
        label = f"above entry, step {plan.peak_step} of {plan.points}" if plan else ""
        number("The plan", plan.peak_bytes if plan else None, label, data.why_missing(run, "wrapper_plan"))
        for variant in ("compiled", "eager"):
            peak = measured.get(variant)
            remark = f"above entry, {style.plural(peak.samples, 'sample')}" if peak else ""
            number(f"Measured, {variant}", peak.bytes if peak else None, remark, UNMEASURED)


def other_curves(run: RunSummary, curves: list[Curve]) -> None:
    """Curves that cannot share the plan's axis, side by side on one scale of bytes."""
    style.section("The same memory by other counts", "curves")
    most = max((curve.peak_bytes for curve in curves if curve.basis != "plan"), default=0)
    for column, (basis, variant, title, axis) in zip(st.columns(len(CURVES)), CURVES, strict=True):
        curve = find(curves, basis, variant)
        with column:
            if curve:
                draw(run, curve, title, axis, most)
            else:
                st.text(title)
                reason = UNMEASURED if basis == "measured" else data.why_missing(run, "inductor_graph")
                style.not_recorded(reason, f"curve-{title}")
    style.note(
        "Each curve has its own x axis, and all share the scale of bytes. The estimate counts scheduler steps of this "
        "graph, with buffers that fusion later removes and inputs that the call frees; a measured curve counts the "
        "allocations of one whole call, with all of its graphs.",
        "curves",
    )


def draw(run: RunSummary, curve: Curve, title: str, axis: str, most: int) -> None:
    """One of the small curves."""
    st.text(f"{title}: {style.size(curve.peak_bytes)}{'' if curve.graph_id else ', whole call'}")
    points = data.ask(memory.points, run.run_id, curve.graph_id, curve.basis, curve.variant)
    figure = curve_figure(points, axis, style.VARIANT_COLOURS[curve.variant], most)
    st.plotly_chart(figure, key=f"curve-{title}", config={"displayModeBar": False}, alt=title)


run = data.current_run()
style.heading("Memory", style.about(run))
headline = st.container()
with st.container(horizontal=True, vertical_alignment="bottom"):
    graph = choose_graph(run, "wrapper_plan")
tell_origin(graph)
curves = data.ask(memory.curves, run.run_id, graph.graph_id)
lifetimes = data.ask(memory.lifetimes, run.run_id, graph.graph_id)
measured = {peak.variant: peak for peak in data.ask(memory.measured_peaks, run.run_id)}
orders = data.ask(memory.orders, run.run_id, graph.graph_id)
numbers(run, curves, measured)
plan = find(curves, "plan", "compiled")
if plan:
    alone = len(data.ask(graphs.decided_graphs, run.run_id)) == 1
    with headline:
        style.sentence(opening(plan, lifetimes, measured.get("compiled") if alone else None))
    plan_part(run.run_id, plan, lifetimes)
else:
    absence(run, ("wrapper_plan",), "The emitted wrapper of this graph has no step that allocates or frees.", "plan")
other_curves(run, curves)
if orders:
    style.section("Schedule orders that Inductor weighed", "orders")
    rows = [
        {
            "order": o.method,
            "estimated peak": o.peak_bytes,
            "exact": exact(o.peak_bytes),
            "": "taken" if o.chosen else "",
        }
        for o in orders
    ]
    table(rows, {"estimated peak": style.size}, key="orders")
