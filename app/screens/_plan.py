"""The plan of one graph: its picture, and the buffers that are alive at a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import DRAWN, plan_figure
from fusionscope.app.table import table
from fusionscope.storage.queries import memory
from fusionscope.storage.queries.memory import Curve, Lifetime, Point

FORMATS = {"bytes": style.size, "last use": style.number, "freed": style.number}
WIDTHS = {"line": {"width": 260}, "computed by": {"width": 240}}


def exact(count: float | None) -> str:
    """Bytes to the byte."""
    return "" if count is None else f"{style.number(count)} B"


def by_size(lifetimes: Iterable[Lifetime]) -> list[Lifetime]:
    """Largest first; those of unknown size last."""
    return sorted(lifetimes, key=lambda life: -(life.bytes or 0))


def total(lifetimes: Iterable[Lifetime]) -> int:
    """Bytes of all of them together."""
    return sum(life.bytes or 0 for life in lifetimes)


@st.fragment
def plan_part(run_id: str, plan: Curve, lifetimes: list[Lifetime]) -> None:
    """The plan with its lifetimes, and the live set at the chosen step; choosing one reruns only this."""
    points = data.ask(memory.points, run_id, plan.graph_id, plan.basis, plan.variant)
    live_bytes = {point.step: point.live_bytes for point in points}
    asked = st.query_params.get("step", "")
    step = int(asked) if asked.isdecimal() and int(asked) in live_bytes else plan.peak_step
    clicked = _picture(points, lifetimes, plan, step)
    slid = (
        st.select_slider("Step", list(live_bytes), step, key=f"step-{plan.graph_id}-{step}")
        if len(points) > 1
        else step
    )
    chosen = slid if clicked is None else clicked
    if chosen != step:
        st.query_params["step"] = str(chosen)
        st.rerun(scope="fragment")
    style.section("Alive at the peak" if step == plan.peak_step else f"Alive after step {step}", "live")
    _live_set(lifetimes, step, live_bytes[step])


def _picture(points: Sequence[Point], lifetimes: list[Lifetime], plan: Curve, step: int) -> int | None:
    """The figure; returns the step that was clicked in it."""
    event = st.plotly_chart(
        plan_figure(points, lifetimes, plan.peak_step, step),
        key=f"plan-{plan.graph_id}-{step}",
        on_select="rerun",
        selection_mode="points",
        config={"displaylogo": False, "displayModeBar": False},
        alt="The plan's live bytes after each wrapper step, above the lifetimes of its buffers",
    )
    hidden = max(0, len(lifetimes) - DRAWN)
    style.note(
        "The plan: what the emitted wrapper allocates, hands on and frees, line by line. A rectangle is a buffer, its "
        "height its size; its place has no meaning, except that a buffer stands where the one whose memory it takes "
        "over stood." + (f" {style.plural(hidden, 'small buffer')} not drawn." if hidden else ""),
        "plan",
    )
    chosen = event["selection"]["points"]
    return int(chosen[0]["customdata"][0]) if chosen else None


def _live_set(lifetimes: list[Lifetime], step: int, live_bytes: int) -> None:
    """What is alive after a step, largest first, and whether it adds up to the plan."""
    entry = [life for life in lifetimes if life.at_entry]
    title = f"With the {style.plural(len(entry), 'input or weight', 'inputs and weights')} ({style.size(total(entry))})"
    with_entry = bool(entry) and st.toggle(title, key="entry")
    alive = by_size(life for life in lifetimes if life.alive_at(step) and (with_entry or not life.at_entry))
    if alive:
        table([_row(life) for life in alive], FORMATS, key="live", config=WIDTHS)
    style.note(_sum(alive, entry, step, live_bytes), "live")


def _row(life: Lifetime) -> dict[str, object]:
    return {
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


def _sum(alive: list[Lifetime], entry: list[Lifetime], step: int, live_bytes: int) -> str:
    """How the live set adds up to the plan, which counts from the entry of the call."""
    made = [life for life in alive if not life.at_entry]
    released = total(life for life in entry if not life.alive_at(step))
    less = f", less the {exact(released)} of inputs that it has freed" if released else ""
    return (
        f"{style.plural(len(made), 'buffer')} of the call: {exact(total(made))}{less}; the plan says "
        f"{exact(live_bytes)} above its entry. Steps are lines of the emitted wrapper; freed is empty for a buffer "
        "that outlives the call."
    )
