"""Memory: what is alive at the peak, and why?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import Small, small_figure
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._graph import choose_graph, tell_origin
from fusionscope.app.screens._memory_diff import choose_other, difference
from fusionscope.app.screens._memory_help import what_would_help
from fusionscope.app.screens._plan import Shown, exact, explore
from fusionscope.app.screens._scene import PLAN, choose_scene, choose_view, name_of, overlay
from fusionscope.app.table import table
from fusionscope.storage.queries import blocks, graphs, live_set, memory, plan_replay
from fusionscope.storage.queries.blocks import Scene
from fusionscope.storage.queries.live_set import Alive
from fusionscope.storage.queries.memory import Curve, MeasuredPeak
from fusionscope.storage.queries.plan_replay import Without
from fusionscope.storage.queries.runs import RunSummary

UNMEASURED = "the run was not measured"
SMALL_BINS = 120  # stretches of a small curve, about two pixels each
CURVES = (  # basis, variant, title, x axis
    ("estimate", "compiled", "Inductor's estimate", "scheduler step"),
    ("plan", "compiled", "The plan", "wrapper step"),
    ("measured", "compiled", "Measured, compiled", "allocation event of the step"),
    ("measured", "eager", "Measured, eager", "allocation event of the step"),
)


def find(curves: Sequence[Curve], basis: str, variant: str) -> Curve | None:
    """The curve of this graph, else the one of the whole call."""
    return next((curve for curve in curves if (curve.basis, curve.variant) == (basis, variant)), None)


def opening(plan: Curve, alive: list[Alive], without: list[Without], measured: MeasuredPeak | None) -> str:
    """The sentence of the screen. `measured`: the compiled peak, where it is of the same call."""
    own = [found for found in alive if not found.life.at_entry and found.life.category != "constant"]
    count = f"{style.plural(len(own), 'buffer')} of the call {'is' if len(own) == 1 else 'are'} alive"
    peak = f"The plan peaks at {style.size(plan.peak_bytes)} at step {plan.peak_step} of {plan.points}"
    blamed = _blamed(own, without) or (_largest(own) if own else "")
    return "; ".join([peak, count + blamed, *([_compared(plan, measured)] if measured else [])]) + "."


def _blamed(own: list[Alive], without: list[Without]) -> str:
    """Which fusion keeps how many buffers alive, and what the peak would be without it."""
    if not without:
        return ""
    group = without[0]
    kept = sum(found.group_id == group.group_id for found in own)
    made = [found for found in own if found.made_by == group.group_id]
    most = max(kept, len(made))
    each = {found.life.bytes for found in made}
    size = f" of {style.size(each.pop())} each" if len(each) == 1 else ""
    return (
        f", {most} of them{size} because {group.kernel or group.group_id} computes {' + '.join(group.members[:6])} at "
        f"once; without that fusion the peak would be {style.size(group.without_bytes)}"
    )


def _largest(own: list[Alive]) -> str:
    """`, the largest buf5 (2 MiB, relu_2, mlp.py:27): cpp_fused_relu_1 still reads it, step 12`."""
    life = own[0].life
    source = style.source_line(life.file, life.line) if life.file else None
    told = ", ".join(filter(None, (style.size(life.bytes), *life.ops[:1], source)))
    return f", the largest {life.buffer} ({told}): {own[0].why}"


def _compared(plan: Curve, measured: MeasuredPeak) -> str:
    if measured.bytes == plan.peak_bytes:
        return "the measured peak is the same to the byte"
    return f"the measured peak differs by {style.size_delta(plan.peak_bytes, measured.bytes)}"


def measured_opening(scene: Scene, curve: Curve) -> str:
    """The sentence of a measured step."""
    shares = data.ask(blocks.shares, scene, curve.peak_step)
    largest = ", ".join(f"{share.category} {style.size(share.bytes)}" for share in shares[:3])
    base = f" on top of {style.size(curve.base_bytes)} that were there before" if curve.base_bytes else ""
    title = f"{name_of(scene.variant)} as measured"
    what = f"{title}: the peak is {style.size(curve.peak_bytes)}{base}, at event {curve.peak_step}"
    return f"{what} of {curve.points}" + (f"; alive are mostly {largest}." if largest else ".")


def number(label: str, value: float | None, remark: str, reason: str) -> None:
    """A peak under its own name, or why there is none."""
    with st.container(key=f"figure-{label}", border=True, width="stretch"):
        st.text(label)
        st.text(style.size(value))
        st.text(f"{exact(value)} · {remark}" if value is not None else f"not recorded: {reason}")


def numbers(run: RunSummary, curves: list[Curve], measured: dict[str, MeasuredPeak]) -> None:
    """Four peaks that are four different numbers."""
    estimate, plan = find(curves, "estimate", "compiled"), find(curves, PLAN, "compiled")
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


def small_curves(run: RunSummary, curves: list[Curve]) -> None:
    """Every count of the same memory, side by side on one scale of bytes."""
    style.section("The same memory by every count", "curves")
    found = [(find(curves, basis, variant), basis, title, axis) for basis, variant, title, axis in CURVES]
    small = [_small(run, curve, title, axis) for curve, _, title, axis in found if curve]
    if small:
        st.plotly_chart(small_figure(small), key="curves", config=style.PLOT, alt="live bytes by every count")
    for curve, basis, title, _ in found:
        if curve is None:
            hook = "wrapper_plan" if basis == PLAN else "inductor_graph"
            reason = UNMEASURED if basis == "measured" else data.why_missing(run, hook)
            style.note(f"{title}: not recorded: {reason}", f"curve-{title}")
    style.note(
        "Each curve has its own x axis, and all share the scale of bytes. The estimate counts scheduler steps of this "
        "graph, with buffers that fusion later removes and inputs that the call frees; a measured curve counts the "
        "allocations of one whole step, with all of its graphs.",
        "curves",
    )


def _small(run: RunSummary, curve: Curve, title: str, axis: str) -> Small:
    points = data.ask(blocks.curve, Scene(run.run_id, curve.graph_id, curve.basis, curve.variant), SMALL_BINS)
    whole = "" if curve.graph_id else ", whole step"
    colour = style.VARIANT_COLOURS[curve.variant]
    return Small(f"{title}: {style.size(curve.peak_bytes)}{whole}", axis, colour, points)


def peak_parts(run: RunSummary, graph_id: str) -> None:
    """Plan and measured peak, reconciled."""
    parts = data.ask(memory.parts, run.run_id, graph_id)
    if not parts:
        return
    style.section("From the plan to the measured peak", "parts")
    rows = [
        {
            "of": f"{part.variant}, {part.graph_id or 'whole step'}",
            "part": part.name,
            "bytes": part.bytes,
            "exact": f"{style.number(part.bytes)} B",
            "what it is": part.explanation,
        }
        for part in parts
    ]
    table(rows, {"bytes": style.size}, key="parts")
    style.note(
        "The parts of one graph add up to the peak that was measured inside its wrapper, above its entry.", "parts"
    )


run = data.current_run()
style.heading("Memory", style.about(run))
headline = st.container()
decided = data.ask(graphs.decided_graphs, run.run_id)
with st.container(horizontal=True, vertical_alignment="bottom"):
    imported = not decided and bool(data.ask(memory.curves, run.run_id, ""))
    graph = None if imported else choose_graph(run, "wrapper_plan")
    curves = data.ask(memory.curves, run.run_id, graph.graph_id if graph else "")
    shown = choose_view(curves)
if graph:
    tell_origin(graph)
    numbers(run, curves, {peak.variant: peak for peak in data.ask(memory.measured_peaks, run.run_id)})
if shown is None:
    absence(run, ("wrapper_plan",), "The emitted wrapper of this graph has no step that allocates or frees.", "plan")
else:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        scene, curve = choose_scene(run, shown)
        other = choose_other(run, scene, curves)
    explore(Shown(scene, curve, (overlay(other[0], other[2]),) if other else ()))
    with headline:
        if scene.basis == PLAN:
            peaks = {peak.variant: peak for peak in data.ask(memory.measured_peaks, run.run_id)}
            alive = data.ask(live_set.live_set, run.run_id, scene.graph_id, curve.peak_step)
            without = data.ask(plan_replay.fusions_at, run.run_id, scene.graph_id, curve.peak_step)
            style.sentence(opening(curve, alive, without, peaks.get("compiled") if len(decided) == 1 else None))
        else:
            style.sentence(measured_opening(scene, curve))
    if other:
        difference(scene, curve, other)
if graph:
    if (plan := find(curves, PLAN, "compiled")) is not None:
        what_would_help(run, plan)
    peak_parts(run, graph.graph_id)
    small_curves(run, curves)
