"""The model through TorchScript, the generation before torch.compile: its graph, and what its fuser made of it."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.storage.queries import compile
from fusionscope.storage.queries.compile import ScriptGraph
from fusionscope.storage.queries.runs import RunSummary

NOT_TRACED = "not recorded: the model is traced when eager is measured against compiled"


def torchscript(run: RunSummary) -> None:
    """Both graphs, each with what holds it back."""
    graphs = data.ask(compile.script_graphs, run.run_id)
    if not graphs:
        style.not_recorded(NOT_TRACED, "torchscript")
    for graph in graphs:
        style.note(_caption(graph), graph.graph_id)
        if graph.reason and graph.code:
            st.code(graph.reason, language=None, wrap_lines=True)
        if graph.code:
            st.code(graph.code, language="python", height=360 if graph.code.count("\n") > 18 else "content")


def _caption(graph: ScriptGraph) -> str:
    if graph.code is None:
        return f"{graph.reason}."
    if graph.graph_id.endswith(".optimised"):
        return f"As TorchScript runs it: {style.plural(graph.groups, 'fusion group')}."
    operations = style.plural(graph.operations, "operation")
    warned = " It holds for these inputs only, as the tracer warned:" if graph.reason else ""
    return f"As torch.jit.trace saw it: {operations}.{warned}"
