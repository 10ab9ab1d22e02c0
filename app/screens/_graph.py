"""The choice of one of Inductor's graphs, shared by the screens that show one."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.storage.queries import graphs
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary


def choose_graph(run: RunSummary, *hooks: str) -> DecidedGraph:
    """Pickers of a compiled frame and of its direction, kept in `?graph=`.

    Stops the page where there is no graph, with the reason of the hooks that find graphs or of `hooks`.
    """
    known = data.ask(graphs.decided_graphs, run.run_id)
    if not known:
        style.not_recorded(data.why_missing(run, "inductor_graph", "trace_stream", *hooks))
        st.stop()
    largest = max(known, key=lambda graph: (graph.direction != "backward", graph.scheduler_nodes))
    shown = next((graph for graph in known if graph.graph_id == st.query_params.get("graph")), largest)
    frames: dict[str, list[DecidedGraph]] = {}
    for graph in known:
        frames.setdefault(graph.compile_id, []).append(graph)
    chosen = _choose_direction(_choose_frame(frames, shown), shown)
    if chosen != shown:
        _show(chosen)
    return chosen


def tell_origin(graph: DecidedGraph) -> None:
    """Say where the decisions come from, when this run got the graph from torch's cache."""
    if graph.decisions_from_run:
        style.note(
            f"From torch's graph cache: the decisions were recorded in run {graph.decisions_from_run}.", "cached"
        )


def _choose_frame(frames: dict[str, list[DecidedGraph]], shown: DecidedGraph) -> list[DecidedGraph]:
    """The graphs of a compiled frame."""
    compile_id = st.selectbox(
        "Frame",
        list(frames),
        list(frames).index(shown.compile_id),
        format_func=lambda key: _frame_title(frames[key]),
        key=f"frame-{shown.compile_id}",
        width=250,
    )
    return frames[compile_id]


def _choose_direction(inside: list[DecidedGraph], shown: DecidedGraph) -> DecidedGraph:
    """The one graph of a frame that is shown: its first when the frame has just been chosen."""
    first = shown if shown in inside else inside[0]
    if len(inside) == 1:
        return first
    graph_id = st.segmented_control(
        "Direction",
        [graph.graph_id for graph in inside],
        default=first.graph_id,
        required=True,
        format_func={graph.graph_id: graph.direction or graph.graph_id for graph in inside}.__getitem__,
        key=f"direction-{first.graph_id}",
    )
    return next(graph for graph in inside if graph.graph_id == graph_id)


def _show(graph: DecidedGraph) -> None:
    """Write the choice into the URL; what was chosen inside the previous graph is forgotten."""
    for name in ("node", "with", "open", "fused", "step"):
        st.query_params.pop(name, None)
    st.query_params["graph"] = graph.graph_id


def _frame_title(inside: list[DecidedGraph]) -> str:
    """`step, model.py:42 (0/0)`: a plain label; Streamlit shows the text of options as it is."""
    first = inside[0]
    where = style.source_line(first.file, first.line)
    name = style.short(first.function or "frame", 18)
    return f"{name}, {where} ({first.compile_id})" if first.file else f"frame {first.compile_id}"
