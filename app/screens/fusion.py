"""Fusion: what was fused with what, why, and what was not?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.components.canvas import canvas
from fusionscope.app.figures.dag import KernelGraph, kernel_graph
from fusionscope.app.screens import _fusion_tables as tables
from fusionscope.app.screens._graph import choose_graph
from fusionscope.app.screens._inspector import inspector
from fusionscope.storage.queries import fusion
from fusionscope.storage.queries.fusion import FusionCounts, Group


def opening(counts: FusionCounts) -> str:
    """The sentence of the screen."""
    nodes, groups = style.plural(counts.scheduler_nodes, "scheduler node"), style.plural(counts.groups, "group")
    rounds = f" in {style.plural(counts.rounds, 'round')}" if counts.rounds else ""
    parts = [f"{nodes} became {groups} in {style.plural(counts.calls, 'kernel call')}{rounds}"]
    if counts.refused:
        most = counts.largest_refused_bytes
        shared = f" (the largest shared {style.size(most)})" if most else ""
        parts.append(f"{style.plural(counts.refused, 'pair')} {'was' if counts.refused == 1 else 'were'} refused{shared}")
    if counts.duplicated:
        parts.append(f"{style.plural(counts.duplicated, 'producer')} inlined into several users at lowering")
    return "; ".join(parts) + "."


def found(groups: list[Group], words: str) -> set[str] | None:
    """Groups whose kernel, operators or names contain the words; None without words."""
    if not words.strip():
        return None
    return {
        group.group_id
        for group in groups
        if words.strip().lower() in " ".join((group.group_id, group.kernel or "", *group.ops, *group.targets)).lower()
    }


@st.fragment
def picture(
    run_id: str, graph_id: str, drawn: KernelGraph, groups: list[Group], focus: str, turn: int, matches: set[str] | None
) -> None:
    """Canvas and inspector; a click reruns only this."""
    left, right = st.columns([2.7, 1], gap="small")
    with left:
        clicked = canvas(drawn, token=f"{run_id} {graph_id}", turn=turn, focus=focus, matches=matches, key="kernel-graph")
    if clicked:
        st.query_params["node"] = clicked
    chosen = st.query_params.get("node", focus)
    with right:
        inspector(run_id, graph_id, next((group for group in groups if group.group_id == chosen), groups[0]))


run = data.current_run()
style.heading("Fusion", style.about(run))
headline = st.container()
with st.container(horizontal=True, vertical_alignment="bottom"):
    graph = choose_graph(run)
    words = st.text_input("Search", key="search", placeholder="kernel, operator, node", bind="query-params", width=260)
groups = data.ask(fusion.groups, run.run_id, graph.graph_id)
if not groups:
    style.not_recorded(data.why_missing(run, "fusion", "inductor_graph"))
    st.stop()

counts = data.ask(fusion.counts, run.run_id, graph.graph_id)
flows = data.ask(fusion.flows, run.run_id, graph.graph_id)
lowerings = data.ask(fusion.lowerings, run.run_id, graph.graph_id)
with headline:
    style.sentence(opening(counts))
largest = max(groups, key=lambda group: (len(group.ops), group.bytes_written or 0))
focus = st.query_params.get("node", largest.group_id)
turn = st.session_state["turn"] = st.session_state.get("turn", 0) + 1
picture(run.run_id, graph.graph_id, kernel_graph(groups, flows, lowerings), groups, focus, turn, found(groups, words))
style.note(
    "A box is a fusion group, in the colour of its heaviest work; a frame holds the groups that one kernel runs. Edges are buffers, "
    "wider with more bytes (logarithmic). Weights and inputs are left out. Traffic in a box is summed over its scheduler nodes.",
    "canvas",
)
tables.lowering_table(lowerings, run)
tables.ledger(data.ask(fusion.decisions, run.run_id, graph.graph_id), run)
tables.group_table(groups, graph.graph_id)
