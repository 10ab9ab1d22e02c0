"""The picture of the Fusion screen to take away; PNG is made by the canvas itself."""

from __future__ import annotations

from functools import partial

import streamlit as st

from fusionscope.app import style
from fusionscope.app.figures.dag import KernelGraph
from fusionscope.app.figures.dag_export import as_html, as_svg
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary


def downloads(drawn: KernelGraph, run: RunSummary, graph: DecidedGraph) -> None:
    """Buttons that make the file when they are pressed."""
    name = f"fusion-{run.run_id}-{graph.graph_id.replace('/', '-')}"
    title = f"Fusion of {style.about(run)}, graph {graph.graph_id}"
    svg, page = partial(as_svg, drawn, title), partial(as_html, drawn, title)
    st.download_button("Save SVG", svg, f"{name}.svg", "image/svg+xml", key="svg", on_click="ignore", type="tertiary")
    st.download_button(
        "Save offline page", page, f"{name}.html", "text/html", key="html", on_click="ignore", type="tertiary"
    )
