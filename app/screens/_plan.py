"""The picture of a plan or a measured step, what is alive at the chosen moment, and the block that was clicked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import Overlay, Picture, shares_figure, timeline_figure
from fusionscope.app.screens._scene import PLAN, axis_title, name_of
from fusionscope.app.table import table
from fusionscope.storage.queries import blocks, live_set
from fusionscope.storage.queries.blocks import Block, Scene
from fusionscope.storage.queries.live_set import Alive
from fusionscope.storage.queries.memory import Curve, Point

MOST = 300  # rows of the live set; its largest
FORMATS = {"bytes": style.size}
WIDTHS = {
    "buffer": {"width": 74},
    "bytes": {"width": 74},
    "source": {"width": 160},
    "kept alive by": {"width": 460},
    "line": {"width": 220},
}
LiveRow = tuple[bool, str, dict[str, object]]  # made by the call, key of the block, cells
HEIGHT = 420  # of the live set in pixels, beside the picture


@dataclass(frozen=True)
class Shown:
    """A scene, its curve, and the curves that lie over it."""

    scene: Scene
    curve: Curve
    overlays: tuple[Overlay, ...] = ()


def exact(count: float | None) -> str:
    """Bytes to the byte."""
    return "" if count is None else f"{style.number(count)} B"


@st.fragment
def explore(shown: Shown) -> None:
    """The picture, the live set beside it and the chosen block; a click reruns only this."""
    points = data.ask(blocks.curve, shown.scene)
    chosen = _chosen(points, shown.curve.peak_step)
    picture, live = st.columns([0.6, 0.4], gap="medium")
    with picture:
        _picture(shown, points, chosen)
    with live:
        _live_set(shown, chosen)
    if key := st.query_params.get("block"):
        _details(shown.scene, key, chosen.step)


def _chosen(points: Sequence[Point], peak_step: int) -> Point:
    """The point of `?step=`, else the peak; of a decimated curve the nearest point that is there."""
    asked = st.query_params.get("step", "")
    step = int(asked) if asked.isdecimal() else peak_step
    return min(points, key=lambda point: abs(point.step - step))


def _picture(shown: Shown, points: Sequence[Point], chosen: Point) -> None:
    scene, peak_step = shown.scene, shown.curve.peak_step
    spans = data.ask(blocks.drawn, scene, peak_step)
    picture = Picture(
        points=points,
        spans=spans,
        band=data.ask(blocks.band, scene, peak_step),
        peak=next(point for point in points if point.step == peak_step),
        chosen=chosen,
        axis=scene.axis,
        axis_title=axis_title(scene),
        title=name_of(PLAN if scene.basis == PLAN else scene.variant),
        lit=st.query_params.get("block"),
        overlays=shown.overlays,
    )
    event = st.plotly_chart(
        timeline_figure(picture),
        key=f"memory-{scene.graph_id}-{scene.variant}-{scene.axis}-{chosen.step}-{picture.lit}",
        on_select="rerun",
        selection_mode=("points", "box"),
        config={"displaylogo": False},  # its bar of tools has the box
        alt="Live bytes after each step, above the lifetimes of the blocks",
    )
    _slide(points, chosen)
    _caption(scene, peak_step)
    _take_up(event["selection"]["points"], points)


def _slide(points: Sequence[Point], chosen: Point) -> None:
    steps = [point.step for point in points]
    if len(steps) > 1:
        slid = st.select_slider("Step", steps, chosen.step, key=f"slide-{chosen.step}", label_visibility="collapsed")
        if slid != chosen.step:
            st.query_params["step"] = str(slid)
            st.rerun(scope="fragment")


def _take_up(selected: Sequence[dict[str, object]], points: Sequence[Point]) -> None:
    """A click on a block lights it; a click or a box on the curve chooses a step, of several the highest."""
    marks = [mark.get("customdata") for mark in selected]
    keys = [mark for mark in marks if isinstance(mark, str)]
    steps = {mark for mark in marks if isinstance(mark, int)}
    if len(keys) == 1 and not steps:
        st.query_params["block"] = keys[0]
    elif steps:
        highest = max((point for point in points if point.step in steps), key=lambda point: point.live_bytes)
        st.query_params["step"] = str(highest.step)
    else:
        return
    st.rerun(scope="fragment")


def _caption(scene: Scene, peak_step: int) -> None:
    count, at_peak = data.ask(blocks.undrawn, scene, peak_step)
    how = (
        "what the emitted wrapper allocates, hands on and frees, line by line"
        if scene.basis == PLAN
        else "the allocator's events of one step, as torch's profiler saw them"
    )
    small = f"; the grey band is {style.plural(count, 'smaller block')}, {exact(at_peak)} at the peak" if count else ""
    style.note(
        f"Shown: {how}. A rectangle is a block of memory, as high as it is large{small}. Click the curve, or draw a "
        "box over it with the tool above, for the live set of that step; click a rectangle or a row for its story.",
        "plan",
    )


def _live_set(shown: Shown, chosen: Point) -> None:
    scene = shown.scene
    at_peak = chosen.step == shown.curve.peak_step
    style.section("Alive at the peak" if at_peak else f"Alive after step {chosen.step}", "live")
    shares = data.ask(blocks.shares, scene, chosen.step)
    if shares:
        named = [(share.category, share.bytes) for share in shares]
        st.plotly_chart(shares_figure(named), key="shares", config=style.PLOT, alt="Bytes alive by category")
    alive = _plan_rows(scene, chosen.step) if scene.basis == PLAN else _measured_rows(scene, chosen.step)
    entry = st.toggle("With what was there before the call", key="entry", help="weights, inputs, optimizer state")
    kept = [(key, row) for own, key, row in alive if own or entry]
    if kept:
        lit = st.query_params.get("block")
        rows, height = [row for _, row in kept], HEIGHT if len(kept) > 12 else None
        key = f"live-{chosen.step}-{lit}-{entry}"  # of its own for each block, so that a click counts once
        clicked = table(rows, FORMATS, key=key, choose=True, config=WIDTHS, height=height)
        if clicked is not None and kept[clicked][0] != lit:
            st.query_params["block"] = kept[clicked][0]
            st.rerun(scope="fragment")
    total = sum(share.bytes for share in shares)
    style.note(
        f"{exact(chosen.live_bytes)} above the entry of the call, {exact(total)} with what was there before and has a "
        "known size.",
        "live",
    )


def _plan_rows(scene: Scene, step: int) -> list[LiveRow]:
    alive = data.ask(live_set.live_set, scene.run_id, scene.graph_id, step)
    return [(not found.life.at_entry, found.life.buffer, _plan_row(found)) for found in alive[: MOST * 2]][:MOST]


def _plan_row(found: Alive) -> dict[str, object]:
    life = found.life
    return {
        "buffer": life.buffer,
        "bytes": life.bytes,
        "source": style.source_line(life.file, life.line) if life.file else life.given_as,
        "kept alive by": found.why,
        "line": life.source_text or "",
        "category": life.category,
        "computed by": life.kernel,
        "holds": life.ops[0] if life.ops else None,
        "allocated": "at entry" if life.at_entry else style.number(life.allocated_at),
        "first use": style.number(found.first_use),
        "last use": style.number(found.last_use),
        "freed at": style.number(life.freed_at),
        "shape": "×".join(life.shape) if life.shape is not None else None,
        "dtype": life.dtype,
        "memory goes on to": ", ".join(found.gives_to),
    }


def _measured_rows(scene: Scene, step: int) -> list[LiveRow]:
    alive = data.ask(blocks.alive, scene, step, MOST)
    return [(block.phase != "before", block.key, _measured_row(block)) for block in alive]


def _measured_row(block: Block) -> dict[str, object]:
    return {
        "buffer": style.short(block.name, 40),
        "bytes": block.bytes,
        "source": style.source_line(block.file, block.line),
        "category": block.category,
        "line": block.source_text or "",
        "allocated by": block.label,
        "computed by": block.kernel,
        "phase": block.phase,
        "allocated": "before" if block.first_event is None else style.number(block.first_event),
        "freed at": style.number(block.last_event),
        "graph": block.graph_id,
    }


def _details(scene: Scene, key: str, step: int) -> None:
    """The block that was clicked: its life, its kernel, its source, its decisions."""
    if scene.basis == PLAN:
        found = data.ask(live_set.story, scene.run_id, scene.graph_id, key, step)
        if found is not None:
            _plan_details(scene, found)
        return
    block = data.ask(blocks.block, scene, key)
    if block is not None:
        _measured_details(scene, block)


def _plan_details(scene: Scene, found: Alive) -> None:
    life = found.life
    style.section(f"{life.buffer}, {style.size(life.bytes)}", "block")
    told = [
        f"{exact(life.bytes)} · {life.category}" + (f" · {life.dtype} {'×'.join(life.shape)}" if life.shape else ""),
        _life_of(found),
        found.why,
        f"{style.source_line(life.file, life.line)}  {life.source_text or ''}" if life.file else life.given_as or "",
        f"Its memory goes on to {', '.join(found.gives_to)}." if found.gives_to else "",
    ]
    with st.container(border=True, key="block"):
        st.text("\n".join(line for line in told if line))
        with st.container(horizontal=True):
            _doors(scene.run_id, scene.graph_id, life.kernel_id, found.made_by, found.group_id)


def _life_of(found: Alive) -> str:
    life = found.life
    begins = "there at entry" if life.at_entry else f"allocated at step {life.allocated_at}"
    by = f" for {life.kernel}" if life.kernel else ""
    uses = "" if found.first_use is None else f", read from step {found.first_use} to {style.number(found.last_use)}"
    ends = "outlives the call" if life.freed_at is None else f"freed at step {life.freed_at}"
    return f"{begins}{by}{uses}, {ends}"


def _measured_details(scene: Scene, block: Block) -> None:
    style.section(f"{style.short(block.name, 60)}, {style.size(block.bytes)}", "block")
    ends = "outlives the step" if block.last_event is None else f"freed at event {block.last_event}"
    begins = "there before the step" if block.first_event is None else f"allocated at event {block.first_event}"
    told = [
        f"{exact(block.bytes)} · {block.category} · {block.phase}",
        f"{begins}, {ends}",
        f"{block.label}" if block.label else "",
        f"{style.source_line(block.file, block.line)}  {block.source_text or ''}" if block.file else "",
    ]
    with st.container(border=True, key="block"):
        st.text("\n".join(line for line in told if line))
        if block.graph_id and block.kernel:
            with st.container(horizontal=True):
                _doors(scene.run_id, block.graph_id, f"{block.graph_id}/{block.kernel}", None, None)


def _doors(run_id: str, graph_id: str, kernel_id: str | None, made_by: str | None, blamed: str | None) -> None:
    if kernel_id:
        style.door("Kernel that writes it", "kernels", run_id, kernel=kernel_id)
    if made_by:
        style.door("Fusion group that makes it", "fusion", run_id, graph=graph_id, node=made_by)
    if blamed and blamed != made_by:
        style.door("Fusion group that keeps it alive", "fusion", run_id, graph=graph_id, node=blamed)
