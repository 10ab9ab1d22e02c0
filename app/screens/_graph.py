"""The choice of one of Inductor's graphs, shared by the screens that show one."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.storage.queries import graphs
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary


def choose_graph(run: RunSummary) -> DecidedGraph:
    """Pickers of a compiled frame and of its direction, kept in `?graph=`. Stops the page where there is no graph."""
    known = {graph.graph_id: graph for graph in data.ask(graphs.decided_graphs, run.run_id)}
    if not known:
        style.not_recorded(data.why_missing(run, "inductor_graph", "trace_stream"))
        st.stop()
    asked = st.query_params.get("graph", "")
    shown = known.get(asked) or max(
        known.values(), key=lambda graph: graph.direction != "backward" and graph.scheduler_nodes
    )
    frames: dict[str, list[DecidedGraph]] = {}
    for graph in known.values():
        frames.setdefault(graph.compile_id, []).append(graph)
    compile_id = st.selectbox(
        "Frame",
        list(frames),
        list(frames).index(shown.compile_id),
        format_func=lambda key: _frame_title(frames[key]),
        key=f"frame-{shown.compile_id}",
        width=340,
    )
    choice = shown if compile_id == shown.compile_id else frames[compile_id][0]
    if len(frames[choice.compile_id]) > 1:
        choice = _choose_direction(frames[choice.compile_id], choice)
    if choice.graph_id != shown.graph_id:  # a default is not written: each writing is a step of the back button
        _show(choice)
    return choice


def _choose_direction(inside: list[DecidedGraph], shown: DecidedGraph) -> DecidedGraph:
    chosen = st.segmented_control(
        "Direction",
        [graph.graph_id for graph in inside],
        default=shown.graph_id,
        required=True,
        format_func={graph.graph_id: graph.direction or graph.graph_id for graph in inside}.__getitem__,
        key=f"direction-{shown.graph_id}",
    )
    return next(graph for graph in inside if graph.graph_id == chosen)


def _show(graph: DecidedGraph) -> None:
    """Write the choice into the URL; what was chosen inside the previous graph is forgotten."""
    for name in ("node", "step"):
        st.query_params.pop(name, None)
    st.query_params["graph"] = graph.graph_id


def _frame_title(inside: list[DecidedGraph]) -> str:
    """`step, model.py:42 (0/0)`: a plain label; Streamlit shows the text of options as it is."""
    first = inside[0]
    where = style.source_line(first.file, first.line)
    return f"{first.function or 'frame'}, {where} ({first.compile_id})" if first.file else f"frame {first.compile_id}"
