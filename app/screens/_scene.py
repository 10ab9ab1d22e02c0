"""What the Memory screen looks at: the plan of a graph, or a measured step; on program order or on time."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.memory_timeline import Overlay
from fusionscope.storage.queries import blocks
from fusionscope.storage.queries.blocks import Scene
from fusionscope.storage.queries.memory import Curve
from fusionscope.storage.queries.runs import RunSummary

PLAN = "plan"
NAMES = {PLAN: "Plan", "snapshot": "Snapshot"}
AXES = {"order": "program order", "time": "time"}
OVERLAY_COLOUR = style.LOSS


def name_of(view: str) -> str:
    """The title of a view: the plan, or the variant of a measured step."""
    return NAMES.get(view, f"{view.capitalize()} step")


def choose_view(curves: Sequence[Curve]) -> Curve | None:
    """Picker of the plan or a measured step, kept in `?view=`; None where there is neither."""
    found = {_view(curve): curve for curve in curves if curve.basis in (PLAN, "measured")}
    if not found:
        return None
    order = sorted(found, key=lambda view: (view != PLAN, view))
    asked = st.query_params.get("view")
    shown = asked if asked in found else order[0]
    key = f"view-{found[shown].graph_id}-{shown}"
    view = st.segmented_control("Shown", order, default=shown, required=True, format_func=name_of, key=key)
    if view != shown:
        for name in ("step", "block", "with"):
            st.query_params.pop(name, None)
        st.query_params["view"] = view
    return found[view]


def choose_scene(run: RunSummary, curve: Curve) -> tuple[Scene, Curve]:
    """The scene of a curve, with a picker of its x axis that is kept in `?axis=`."""
    axis = _choose_axis(curve.basis == PLAN)
    return Scene(run.run_id, curve.graph_id, curve.basis, curve.variant, axis), curve


def _choose_axis(plan: bool) -> str:
    asked = "order" if plan or st.query_params.get("axis") != "time" else "time"
    axis = st.segmented_control(
        "Along",
        list(AXES),
        default=asked,
        required=True,
        format_func=AXES.__getitem__,
        key=f"axis-{plan}-{asked}",
        disabled=plan,
        help="A plan has an order and no times; a measured step has both.",
    )
    if axis != asked:
        st.query_params["axis"] = axis
    return axis


def _view(curve: Curve) -> str:
    return PLAN if curve.basis == PLAN else curve.variant


def axis_title(scene: Scene) -> str:
    """What the x axis counts."""
    if scene.axis == "time":
        return "time since the step began, µs (allocation events, as the profiler timed them)"
    return "wrapper step" if scene.basis == PLAN else "allocation event of the step"


def overlay(other: Scene, name: str) -> Overlay:
    """The curve of another scene, to lie over the one that is shown."""
    return Overlay(name, OVERLAY_COLOUR, data.ask(blocks.curve, other))
