"""Fusion: what was fused with what, why, and what was not?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.components.canvas import View, canvas
from fusionscope.app.figures.dag import KernelGraph, kernel_graph
from fusionscope.app.screens import _fusion_tables as tables
from fusionscope.app.screens._graph import choose_graph, tell_origin
from fusionscope.app.screens._inspector import inspector
from fusionscope.app.screens._schedule import schedule_tables
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
        parts.append(f"{style.plural(counts.refused, 'pair')} {_were(counts.refused)} refused{shared}")
    if counts.duplicated:
        producers = style.plural(counts.duplicated, "producer")
        parts.append(f"{producers} with several users {_were(counts.duplicated)} inlined at lowering")
    return "; ".join(parts) + "."


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def found(groups: list[Group], words: str | None) -> tuple[str, ...] | None:
    """Groups whose kernel, operators or names contain the words; None without words."""
    wanted = (words or "").strip().lower()
    if not wanted:
        return None
    return tuple(
        group.group_id
        for group in groups
        if wanted in " ".join((group.group_id, group.kernel or "", *group.ops, *group.targets)).lower()
    )


def named(groups: list[Group], name: str | None) -> Group | None:
    """The group of that name, or the one that holds the scheduler node of that name."""
    return next((group for group in groups if name == group.group_id or name in group.members), None)


def view(groups: list[Group], token: str, words: str | None) -> View:
    """The canvas on the group that the URL names, else on the one with most in it."""
    asked = named(groups, st.query_params.get("node"))
    shown = asked or max(groups, key=lambda group: (len(group.members), len(group.ops)))
    turn = st.session_state["turn"] = st.session_state.get("turn", 0) + 1
    return View(token, turn, shown.group_id, asked is not None, found(groups, words))


@st.fragment
def picture(run_id: str, graph_id: str, groups: list[Group], drawn: KernelGraph, view: View) -> None:
    """Canvas and inspector; a click reruns only this."""
    left, right = st.columns([2.7, 1], gap="small")
    with left:
        clicked = canvas(drawn, view, key="kernel-graph")
    if clicked:
        st.query_params["node"] = clicked
    with right:
        inspector(
            run_id, graph_id, named(groups, st.query_params.get("node")) or named(groups, view.focus) or groups[0]
        )


run = data.current_run()
style.heading("Fusion", style.about(run))
headline = st.container()
with st.container(horizontal=True, vertical_alignment="bottom"):
    graph = choose_graph(run, "fusion")
    with_refused = st.toggle("Refused pairs", key="refused", bind="query-params")
    words = st.text_input("Search", key="search", placeholder="kernel, operator, node", bind="query-params", width=260)
tell_origin(graph)
groups = data.ask(fusion.groups, run.run_id, graph.graph_id)
if not groups:
    style.not_recorded(data.why_missing(run, "inductor_graph", "fusion"))
    st.stop()

counts = data.ask(fusion.counts, run.run_id, graph.graph_id)
flows = data.ask(fusion.flows, run.run_id, graph.graph_id)
lowerings = data.ask(fusion.lowerings, run.run_id, graph.graph_id)
with headline:
    style.sentence(opening(counts))
decisions = data.ask(fusion.decisions, run.run_id, graph.graph_id)
refused = [pair for pair in decisions if with_refused and pair.verdict == "refused" and pair.shared_bytes]
drawn = kernel_graph(groups, flows, lowerings, refused)
token = f"{run.run_id} {graph.graph_id}"
picture(run.run_id, graph.graph_id, groups, drawn, view(groups, f"{token} {with_refused}", words))
style.note(
    "A box is a fusion group, in the colour of its heaviest work; a frame holds the groups that one kernel runs. Edges "
    "are buffers, wider with more bytes (logarithmic). Weights and inputs are left out. The bytes in a box are summed "
    "over its scheduler nodes.",
    "canvas",
)
tables.lowering_table(lowerings, run)
tables.ledger(decisions, run)
tables.group_table(groups, token)
schedule_tables(run, graph.graph_id)
