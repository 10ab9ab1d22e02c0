"""Fusion: what was fused with what, why, and what was not?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.components.canvas import Event, View, canvas
from fusionscope.app.figures.dag import KernelGraph
from fusionscope.app.figures.dag_items import OTHER
from fusionscope.app.screens import _fusion_controls as controls
from fusionscope.app.screens import _fusion_tables as tables
from fusionscope.app.screens._fusion_diff import compared
from fusionscope.app.screens._fusion_export import downloads
from fusionscope.app.screens._fusion_picture import Asked, drawn, named, steps, toggle
from fusionscope.app.screens._graph import choose_graph, tell_origin
from fusionscope.app.screens._inspector import Chosen, inspector, module_inspector
from fusionscope.app.screens._why import pair_panel
from fusionscope.storage.queries import fusion, fusion_refusals
from fusionscope.storage.queries.fusion import FusionCounts, Group
from fusionscope.storage.queries.graphs import DecidedGraph

CSS = Path(__file__).parents[1] / "static" / "inspector.css"


def opening(counts: FusionCounts, lost: int | None) -> str:
    """The sentence of the screen. `lost`: bytes that the refused fusions would have spared, together at most."""
    nodes, groups = style.plural(counts.scheduler_nodes, "scheduler node"), style.plural(counts.groups, "group")
    rounds = f" in {style.plural(counts.rounds, 'round')}" if counts.rounds else ""
    parts = [f"{nodes} became {groups} in {style.plural(counts.calls, 'kernel call')}{rounds}"]
    if counts.refused:
        cost = f", which would have spared up to {style.size(lost)} of memory traffic" if lost else ""
        parts.append(f"{style.plural(counts.refused, 'pair')} {_were(counts.refused)} refused{cost}")
    if counts.duplicated:
        producers = style.plural(counts.duplicated, "producer")
        parts.append(f"{producers} with several users {_were(counts.duplicated)} inlined at lowering")
    return "; ".join(parts) + "."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def found(graph: KernelGraph, groups: Sequence[Group], words: str | None) -> tuple[str, ...] | None:
    """Boxes whose kernel, operators, names or lines of the model contain the words; None without words."""
    wanted = (words or "").strip().lower()
    if not wanted:
        return None
    known = {
        group.group_id: " ".join(
            (
                group.kernel or "",
                *filter(None, group.modules),
                style.source_line(group.file, group.line),
                *group.ops,
                *group.targets,
            )
        )
        for group in groups
    }
    return tuple(
        node["id"]
        for node in graph.network.nodes
        if wanted in f"{node['id']} {node['title']} {known.get(node['id'], '')}".lower()
    )


def in_picture(graph: KernelGraph, name: str, group: Group, mark: str) -> str:
    """The box or frame that shows a name: its own, else that of its group, else of the module that holds it."""
    shown = {node["id"] for node in graph.network.nodes} | {frame.id for frame in graph.frames}
    return next((id for id in (name, mark + group.group_id) if id in shown), name)


def view(graph: KernelGraph, groups: Sequence[Group], asked: Asked, token: str) -> View:
    """The canvas on what the address names, else on the group with most in it."""
    name = st.query_params.get("node")
    known = named(groups, name.lstrip(OTHER)) if name else None
    shown = known or max(groups, key=lambda group: (len(group.members), len(group.ops)))
    mark = OTHER if name and name.startswith(OTHER) else ""
    focus = in_picture(graph, name, shown, mark) if name and known else shown.group_id
    if name and name.lstrip(OTHER).startswith("module "):
        focus = name
    second = named(groups, st.query_params.get("with"))
    turn = st.session_state["turn"] = st.session_state.get("turn", 0) + 1
    fusions = steps(run.run_id, shown_graphs[0].graph_id, groups) if asked.replay else ()
    taken = st.query_params.get("fused", "")
    matches = found(graph, groups, words)
    return View(
        token,
        turn,
        focus,
        second.group_id if second else None,
        name is not None,
        matches,
        fusions,
        min(len(fusions), int(taken)) if taken.isdecimal() else len(fusions),
    )


@st.fragment
def picture(graphs: Sequence[DecidedGraph], graph: KernelGraph, view: View) -> None:
    """Canvas and inspector; a click reruns only this."""
    left, right = st.columns([2.7, 1], gap="small")
    with left:
        event = canvas(graph, view, key="fusion-graph")
    if event:
        answer(event)
    with right:
        st.html(CSS)
        panel(graphs, view.focus)


def answer(event: Event) -> None:
    """Write what was done into the address; opening and closing draw the whole anew."""
    if event.kind == "toggle":
        toggle(event.id)
        st.rerun()
    elif event.kind == "taken":
        st.query_params["fused"] = event.id
    else:
        st.query_params["node"] = event.id
        st.query_params.pop("with", None)
        if event.second:
            st.query_params["with"] = event.second


def panel(graphs: Sequence[DecidedGraph], focus: str) -> None:
    """The inspector of what is chosen: a pair, a module, a group, or an FX node of one."""
    name = st.query_params.get("node", focus)
    graph = graphs[-1] if name.startswith(OTHER) else graphs[0]
    groups = data.ask(fusion.groups, run.run_id, graph.graph_id)
    name = name.lstrip(OTHER)
    if name.startswith("module "):
        shown = controls.module_groups(groups, run.run_id, graph.graph_id, name.removeprefix("module "))
        module_inspector(run.run_id, *shown)
        return
    group = named(groups, name) or named(groups, focus.lstrip(OTHER)) or groups[0]
    other = named(groups, st.query_params.get("with", "").lstrip(OTHER))
    if other is not None:
        pair_panel(run.run_id, graph.graph_id, group, other)
        if st.button("Back to the first", key="unpair", type="tertiary"):
            st.query_params.pop("with", None)
            st.rerun()
        return
    node = name.partition("/")[2] or (name if name in group.ops else "")
    inspector(Chosen(run.run_id, graph.graph_id, group, node or None), groups)


run = data.current_run()
style.heading("Fusion", style.about(run))
headline = st.container()
with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
    graph = choose_graph(run, "fusion")
    level, colour, words = controls.look()
other = controls.counterpart(run, graph)
extras = st.container(horizontal=True, vertical_alignment="bottom", gap="medium")
with extras:
    asked = controls.scope(run, other, level, colour)
tell_origin(graph)
groups = data.ask(fusion.groups, run.run_id, graph.graph_id)
if not groups:
    style.not_recorded(data.why_missing(run, "inductor_graph", "fusion"))
    st.stop()

worklist = data.ask(fusion_refusals.worklist, run.run_id, graph.graph_id)
lost = sum(row.bytes or 0 for row in worklist if row.verdict == "refused")
with headline:
    style.sentence(opening(data.ask(fusion.counts, run.run_id, graph.graph_id), lost))
shown_graphs = [graph, other] if asked.both and other else [graph]
matches = compared(run, graph, asked.against)
token = " ".join(
    [run.run_id, *(shown.graph_id for shown in shown_graphs), asked.token, str(data.generation(data.library().path))]
)
shown = drawn(token, asked, run.run_id, shown_graphs, matches)
picture(shown_graphs, shown, view(shown, groups, asked, token))
with extras:
    downloads(shown, run, graph)
style.note(controls.caption(asked), "canvas")
controls.tell_missing(run, graph, asked)
tables.tabs(run, graph, worklist, matches, asked)
