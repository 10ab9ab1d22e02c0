"""The canvas that shows a kernel graph: vis-network, drawn in the page itself, with clicks sent back."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import streamlit as st

from fusionscope.app import style
from fusionscope.app.figures.dag import KernelGraph

STATIC = Path(__file__).parents[1] / "static"
VIS = "app/static/vis-network-9.1.2.min.js"  # as pyvis 0.3.2 packages it; its own page would load from a CDN
HEIGHT, LEAST_HEIGHT = 600, 360  # of the picture in pixels
HTML = """
<div class="canvas">
  <div class="tools">
    <button name="in" title="Zoom in">+</button>
    <button name="out" title="Zoom out">−</button>
    <button name="fit" title="Show the whole graph">Fit</button>
  </div>
  <div class="view"></div>
  <div class="legend"></div>
</div>
"""

_CANVAS = st.components.v2.component(
    "fusionscope_canvas", html=HTML, css=(STATIC / "canvas.css").read_text(), js=(STATIC / "canvas.js").read_text()
)


@dataclass(frozen=True, slots=True)
class View:
    """How to show a graph.

    The picture is drawn anew only when `token` changes, and `focus`, a node chosen elsewhere, is selected only when
    `turn` changes: a click stays in the browser, and the same data is not sent again. A node that was `asked` for (in
    the URL, in a table) is moved into sight. Nodes that are not in `matches` are faded; None fades nothing.
    """

    token: str
    turn: int
    focus: str
    asked: bool
    matches: tuple[str, ...] | None


def canvas(graph: KernelGraph, view: View, *, key: str) -> str | None:
    """Show `graph`; returns the node whose click caused this rerun, None when it was not a click."""
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    data = {
        "library": f"/{base}/{VIS}" if base else f"/{VIS}",
        "nodes": graph.network.nodes,
        "edges": graph.network.edges,
        "options": graph.network.options,
        "frames": [asdict(frame) for frame in graph.frames],
        "legend": _legend(graph),
        "height": round(min(HEIGHT, max(LEAST_HEIGHT, graph.height + 80))),
        **asdict(view),
    }
    clicked: str | None = _CANVAS(data=data, key=key, on_clicked_change=lambda: None).clicked
    return clicked


def _legend(graph: KernelGraph) -> list[dict[str, str]]:
    """The kinds that the picture has, in the order of the palette."""
    kinds = {node["kind"] for node in graph.network.nodes}
    entries = [
        {"colour": colour, "name": style.KIND_NAMES[kind]}
        for kind, colour in style.KIND_COLOURS.items()
        if kind in kinds
    ]
    if any(node["dashed"] for node in graph.network.nodes):
        entries.append({"mark": "dashed", "name": "computed again"})
    if any("dashes" in edge for edge in graph.network.edges):
        entries.append({"mark": "refused", "name": "refused pair"})
    return entries
