"""The controls above the canvas of the Fusion screen, kept in the address, and what they mean in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.dag_colours import FIGURES
from fusionscope.app.figures.dag_items import LEVELS, calls_of, module_of
from fusionscope.app.screens._fusion_picture import Asked, paint, toggled
from fusionscope.storage.queries import fusion_ops, graphs
from fusionscope.storage.queries.fusion import Group
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary

COLOURS = ("kind", *FIGURES, "change")
HOPS = {"all": None, "1 hop": 1, "2 hops": 2, "4 hops": 4}


def counterpart(run: RunSummary, graph: DecidedGraph) -> DecidedGraph | None:
    """The graph of the other direction of the same frame."""
    known = data.ask(graphs.decided_graphs, run.run_id)
    pair = {"forward", "backward"}
    return next((g for g in known if g.compile_id == graph.compile_id and {g.direction, graph.direction} == pair), None)


def look() -> tuple[str, str, str]:
    """Level, colouring, and the words of the search."""
    level = st.segmented_control("Level", LEVELS, default="kernel", required=True, key="level", bind="query-params")
    colour = st.selectbox("Colour by", COLOURS, key="colour", bind="query-params", width=120)
    words = st.text_input("Search", key="search", placeholder="kernel, operator, line", bind="query-params", width=180)
    return level or "kernel", colour, words or ""


def scope(run: RunSummary, other: DecidedGraph | None, level: str, colour: str) -> Asked:
    """How much is shown, beside what, and which extras."""
    hops = st.selectbox("Around the chosen", list(HOPS), key="hops", bind="query-params", width=120)
    against = _other_run(run)
    both = other is not None and st.toggle(f"With {other.direction}", key="both", bind="query-params")
    refused = st.toggle("Refused pairs", key="refused", bind="query-params")
    replay = st.toggle("Replay", key="replay", bind="query-params")
    around = st.query_params.get("node", "").partition("/")[0] or None
    return Asked(level, colour, toggled(), HOPS[hops], around, replay, refused, both, against)


def _other_run(run: RunSummary) -> str | None:
    """The run to compare with, those of the same name first; kept in `?against=`."""
    runs = {other.run_id: other for other in data.run_choice() if other.run_id != run.run_id}
    near = sorted(runs, key=lambda id: runs[id].name != run.name)
    asked = st.query_params.get("against")
    against = st.selectbox(
        "Against run",
        near,
        near.index(asked) if asked in near else None,
        format_func=lambda id: style.short(f"{runs[id].name}, {runs[id].created_at:%d %b %H:%M}", 40),
        placeholder="none",
        key=f"against-{run.run_id}",
        width=200,
    )
    if against and against != asked:
        st.query_params["against"] = against
    elif not against:
        st.query_params.pop("against", None)
    return against


def module_groups(groups: Sequence[Group], run_id: str, graph_id: str, first: str) -> tuple[str, list[Group]]:
    """Name and groups of the stretch of one module that begins with group `first`."""
    calls = calls_of(groups, data.ask(fusion_ops.handovers, run_id, graph_id))
    for name, inside in groupby(calls, key=module_of):
        held = [group for call in inside for group in call]
        if held[0].group_id == first:
            return name, held
    return "no module of this graph", []


def caption(asked: Asked) -> str:
    """What the picture shows, in one line or two."""
    boxes = {
        "module": "A box is a stretch of one module of the model, its bar the kinds of its groups",
        "kernel": "A box is a fusion group; a frame holds the groups that one kernel call runs",
        "op": "A box is an FX node in the group that computes it; views that only a library call reads have none",
    }[asked.level]
    if asked.replay:
        boxes = (
            "A box is a scheduler node, a frame its final group; a joint is a fusion, taken in the order of the slider"
        )
    return (
        f"{boxes}. Edges are buffers, wider with more bytes (logarithmic); dotted ones stay in registers. Weights and "
        "inputs are left out. The bytes in a box are summed over its scheduler nodes."
    )


def tell_missing(run: RunSummary, graph: DecidedGraph, asked: Asked) -> None:
    """Why a picture that is asked for shows less than that."""
    if asked.colour == "change" and not asked.against:
        style.note("The change is against another run: choose it above.", "no-change")
    elif asked.colour not in ("kind", "change"):
        shown = paint(run.run_id, [graph], asked, [])
        if not any(value is not None for value in shown.values.values()):
            reason = _why_no(asked.colour, run)
            style.not_recorded(f"{FIGURES[asked.colour].title}: {reason}", "no-figure")
    if asked.hops is not None and asked.around is None:
        style.note("The neighbourhood is that of a box: choose one first.", "no-centre")
    if asked.both and not data.ask(fusion_ops.saved_links, run.run_id, *_ends(run, graph)):
        style.not_recorded(f"links of saved values: {data.why_missing(run, 'node_links', 'partition')}", "no-links")


def _ends(run: RunSummary, graph: DecidedGraph) -> tuple[str, str]:
    other = counterpart(run, graph)
    assert other is not None
    return (graph.graph_id, other.graph_id) if graph.direction == "forward" else (other.graph_id, graph.graph_id)


def _why_no(colour: str, run: RunSummary) -> str:
    """The reason that a figure is missing everywhere."""
    if colour == "time":
        return data.why_missing(run, "measure") if run.device_kind == "target" else "the run was not measured"
    if colour == "peak":
        return data.why_missing(run, "wrapper_plan")
    if run.device_kind == "cpu":
        return "it is a fact of a GPU, and this run is on a CPU"
    return data.why_missing(run, "kernel_configs")
