"""Memory: what is alive at the peak, and why?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import DRAWN, curve_figure, plan_figure
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._graph import choose_graph
from fusionscope.app.table import table
from fusionscope.storage.queries import memory
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.memory import Curve, Lifetime, MeasuredPeak, Order
from fusionscope.storage.queries.runs import RunSummary

UNMEASURED = "the run was not measured"
WIDTHS = {"line": {"width": 260}, "computed by": {"width": 240}}
CURVES = (  # basis, variant, title, x axis
    ("estimate", "compiled", "Inductor's estimate", "scheduler step"),
    ("measured", "compiled", "Measured, compiled", "allocation event of the call"),
    ("measured", "eager", "Measured, eager", "allocation event of the call"),
)


def exact(count: float | None) -> str:
    """Bytes to the byte."""
    return "" if count is None else f"{style.number(count)} B"


def find(curves: Sequence[Curve], basis: str, variant: str) -> Curve | None:
    """The curve of this graph, else the one of the whole call."""
    return next((curve for curve in curves if (curve.basis, curve.variant) == (basis, variant)), None)


def by_size(lifetimes: Iterable[Lifetime]) -> list[Lifetime]:
    """Largest first; those of unknown size last."""
    return sorted(lifetimes, key=lambda life: -(life.bytes or 0))


def total(lifetimes: Iterable[Lifetime]) -> int:
    """Bytes of buffers, memory that one took over from another counted once for each."""
    return sum(life.bytes or 0 for life in lifetimes)


def opening(plan: Curve, lifetimes: list[Lifetime], compiled: MeasuredPeak | None, alone: bool) -> str:
    """The sentence of the screen."""
    alive = by_size(life for life in lifetimes if life.alive_at(plan.peak_step) and not life.at_entry)
    where = f"The plan peaks at {style.size(plan.peak_bytes)} at step {plan.peak_step} of {plan.points}"
    parts = [f"{where}; {style.plural(len(alive), 'buffer')} of the call {'is' if len(alive) == 1 else 'are'} alive"]
    if alive and alive[0].bytes:
        source = f", {style.source_line(alive[0].file, alive[0].line)}" if alive[0].file else ""
        ops = f", {alive[0].ops[0]}" if alive[0].ops else ""
        parts[0] += f", the largest {alive[0].buffer} ({style.size(alive[0].bytes)}{ops}{source})"
    if compiled and alone:
        same = compiled.bytes == plan.peak_bytes
        apart = style.size_delta(plan.peak_bytes, compiled.bytes)
        parts.append("the measured peak is the same to the byte" if same else f"the measured peak differs by {apart}")
    return "; ".join(parts) + "."


def number(label: str, value: float | None, remark: str, reason: str) -> None:
    """A peak under its own name, or why there is none."""
    with st.container(key=f"figure-{label}", border=True, width="stretch"):
        st.text(label)
        st.text(style.size(value))
        st.text(f"{exact(value)}, {remark}" if value is not None else f"not recorded: {reason}")


def numbers(run: RunSummary, curves: list[Curve], orders: list[Order], measured: dict[str, MeasuredPeak]) -> None:
    """Four peaks that are four different numbers."""
    chosen = next((order for order in orders if order.chosen), None)
    estimate = find(curves, "estimate", "compiled")
    plan = find(curves, "plan", "compiled")
    with st.container(horizontal=True, gap="small"):
        value = chosen.peak_bytes if chosen else estimate.peak_bytes if estimate else None
        order = f"schedule order {chosen.method}" if chosen else "as the scheduler's own simulation gives it"
        number("Inductor's estimate", value, order, data.why_missing(run, "memory_orders"))
        label = f"step {plan.peak_step} of {plan.points}" if plan else ""
        number("The plan", plan.peak_bytes if plan else None, label, data.why_missing(run, "wrapper_plan"))
        for variant in ("compiled", "eager"):
            peak = measured.get(variant)
            remark = style.plural(peak.samples, "sample") if peak else ""
            number(f"Measured, {variant}", peak.bytes if peak else None, remark, UNMEASURED)


def live_set(lifetimes: list[Lifetime], step: int, live_bytes: int) -> None:
    """What is alive after a step, largest first, and whether it adds up to the plan."""
    entry = [life for life in lifetimes if life.at_entry]
    with_entry = bool(entry) and st.toggle(
        f"With the {len(entry)} inputs and weights ({style.size(total(entry))})", key="entry"
    )
    alive = by_size(life for life in lifetimes if life.alive_at(step) and (with_entry or not life.at_entry))
    if not alive:
        style.note(f"Nothing that the call allocated is alive after step {step}.", "live")
        return
    rows = [
        {
            "buffer": life.buffer,
            "bytes": life.bytes,
            "category": life.category,
            "computed by": life.kernel,
            "holds": life.ops[0] if life.ops else None,
            "source": style.source_line(life.file, life.line),
            "line": (life.source_text or "").strip(),
            "allocated": "at entry" if life.at_entry else style.number(life.allocated_at),
            "last use": life.last_use,
            "freed": life.freed_at,
            "shape": "×".join(life.shape) if life.shape is not None else None,
            "dtype": life.dtype,
            "takes over": life.reuses,
            "how": life.reuse_kind,
        }
        for life in alive
    ]
    table(rows, {"bytes": style.size, **dict.fromkeys(("last use", "freed"), style.number)}, key="live", config=WIDTHS)
    style.note(sum_of(alive, entry, step, live_bytes), "live")


def sum_of(alive: list[Lifetime], entry: list[Lifetime], step: int, live_bytes: int) -> str:
    """How the live set adds up to the plan, which counts from the entry of the call."""
    made = [life for life in alive if not life.at_entry]
    released = total(life for life in entry if not life.alive_at(step))
    less = f", less the {exact(released)} of inputs that it has freed" if released else ""
    return (
        f"{style.plural(len(made), 'buffer')} of the call: {exact(total(made))}{less}; the plan says {exact(live_bytes)} above the entry of the "
        "call. Steps are lines of the emitted wrapper; freed is empty for a buffer that outlives the call."
    )


@st.fragment
def plan_part(run: RunSummary, graph: DecidedGraph, plan: Curve, lifetimes: list[Lifetime]) -> None:
    """The plan with its lifetimes, and the live set at the chosen step; choosing one reruns only this."""
    points = data.ask(memory.points, run.run_id, graph.graph_id, "plan", plan.variant)
    steps = [point.step for point in points]
    asked = st.query_params.get("step", "")
    step = int(asked) if asked.isdecimal() and int(asked) in steps else plan.peak_step
    event = st.plotly_chart(
        plan_figure(points, lifetimes, plan.peak_step, step),
        key=f"plan-{graph.graph_id}-{step}",
        on_select="rerun",
        selection_mode="points",
        config={"displaylogo": False, "displayModeBar": False},
        alt="The plan's live bytes after each wrapper step, above the lifetimes of its buffers",
    )
    hidden = max(0, sum(life.allocated_at is not None for life in lifetimes) - DRAWN)
    style.note(
        "The plan: what the emitted wrapper allocates, hands on and frees, line by line. A rectangle is a buffer, its height its size; "
        "its place has no meaning, except that a buffer stands where the one whose memory it takes over stood."
        + (f" {style.plural(hidden, 'small buffer')} not drawn." if hidden else ""),
        "plan",
    )
    points_chosen = event["selection"]["points"]
    chosen = st.select_slider("Step", steps, step, key=f"step-{graph.graph_id}-{step}") if len(steps) > 1 else step
    if points_chosen:
        chosen = points_chosen[0]["customdata"][0]
    if chosen != step:
        st.query_params["step"] = str(chosen)
        st.rerun(scope="fragment")
    style.section("Alive at the peak" if step == plan.peak_step else f"Alive after step {step}", "live")
    live_set(lifetimes, step, next(point.live_bytes for point in points if point.step == step))


def other_curves(run: RunSummary, graph: DecidedGraph, curves: list[Curve]) -> None:
    """Curves that cannot share the plan's axis, side by side on one scale of bytes."""
    style.section("The same memory by other counts", "curves")
    most = max((curve.peak_bytes for curve in curves if curve.basis != "plan"), default=0)
    for column, (basis, variant, title, axis) in zip(st.columns(len(CURVES)), CURVES, strict=True):
        curve = find(curves, basis, variant)
        with column:
            if curve is None:
                st.text(title)
                style.not_recorded(
                    UNMEASURED if basis == "measured" else data.why_missing(run, "inductor_graph"), f"curve-{title}"
                )
                continue
            st.text(f"{title}: {style.size(curve.peak_bytes)}{'' if curve.graph_id else ', whole call'}")
            points = data.ask(memory.points, run.run_id, curve.graph_id, curve.basis, curve.variant)
            colour = style.VARIANT_COLOURS[curve.variant]
            st.plotly_chart(
                curve_figure(points, axis, colour, most),
                key=f"curve-{title}",
                config={"displayModeBar": False},
                alt=title,
            )
    style.note(
        "Each curve has its own x axis, and all share the scale of bytes. The estimate counts scheduler steps of this graph, with buffers "
        "that fusion later removes; a measured curve counts the allocations of one whole call, with all of its graphs.",
        "curves",
    )


run = data.current_run()
style.heading("Memory", style.about(run))
headline = st.container()
with st.container(horizontal=True, vertical_alignment="bottom"):
    graph = choose_graph(run)
curves = data.ask(memory.curves, run.run_id, graph.graph_id)
lifetimes = data.ask(memory.lifetimes, run.run_id, graph.graph_id)
measured = {peak.variant: peak for peak in data.ask(memory.measured_peaks, run.run_id)}
orders = data.ask(memory.orders, run.run_id, graph.graph_id)
numbers(run, curves, orders, measured)
plan = find(curves, "plan", "compiled")
if plan:
    alone = len({curve.graph_id for curve in curves if curve.graph_id}) == 1
    with headline:
        style.sentence(opening(plan, lifetimes, measured.get("compiled"), alone))
    plan_part(run, graph, plan, lifetimes)
else:
    absence(run, ("wrapper_plan",), "The emitted wrapper of this graph has no step that allocates or frees.", "plan")
other_curves(run, graph, curves)
if orders:
    style.section("Schedule orders that Inductor weighed", "orders")
    table(
        [
            {
                "order": o.method,
                "estimated peak": o.peak_bytes,
                "exact": exact(o.peak_bytes),
                "taken": "taken" if o.chosen else "",
            }
            for o in orders
        ],
        {"estimated peak": style.size},
        key="orders",
    )
