"""The canvas that shows a fusion graph: vis-network, drawn in the page itself, with what is done to it sent back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from fusionscope.app.figures.dag import KernelGraph

STATIC = Path(__file__).parents[1] / "static"
VIS = "app/static/vis-network-9.1.2.min.js"  # as pyvis 0.3.2 packages it; its own page would load from a CDN
FEW = 64  # different values of a column that are sent as places among them
HEIGHT, LEAST_HEIGHT = 640, 380  # of the picture in pixels
HTML = """
<div class="canvas">
  <div class="tools">
    <span>click: select · + or double click: open · shift + click: why not both? · Ctrl + wheel: zoom</span>
    <button name="in" title="Zoom in">+</button>
    <button name="out" title="Zoom out">−</button>
    <button name="fit" title="Show the whole graph">Fit</button>
    <button name="png" title="Save the picture as PNG">PNG</button>
  </div>
  <div class="view"></div>
  <div class="tip"></div>
  <div class="replay">
    <button name="play" title="Play the fusions in the order taken">▶</button>
    <input type="range" min="0" value="0" aria-label="Fusions taken so far" />
    <span></span>
  </div>
  <div class="legend"></div>
</div>
"""

_CANVAS = st.components.v2.component(
    "fusionscope_canvas",
    html=HTML,
    css=(STATIC / "canvas.css").read_text(),
    js=(STATIC / "canvas_drawing.js").read_text() + (STATIC / "canvas.js").read_text(),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A fusion: the boxes that it joins, and what is told of it."""

    parts: tuple[str, ...]  # one box of each side, then of further members
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """How to show a graph.

    The picture is drawn anew only when `token` changes, and `focus`, a node chosen elsewhere, is selected only when
    `turn` changes: a click stays in the browser, and the same data is not sent again. A node that was `asked` for (in
    the URL, in a table) is moved into sight; `second` makes a pair of it. Nodes that are not in `matches` are faded;
    None fades nothing. `steps`: the fusions to replay, of which `taken` are shown at first.
    """

    token: str
    turn: int
    focus: str
    second: str | None
    asked: bool
    matches: tuple[str, ...] | None
    steps: tuple[Step, ...] = ()
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """What the reader did: selected a box, picked a pair, opened or closed an item, moved the replay."""

    kind: str  # node, pair, toggle, taken
    id: str
    second: str | None = None


def canvas(graph: KernelGraph, view: View, *, key: str) -> Event | None:
    """Show `graph`; returns what caused this rerun, None when it was nothing done on the canvas."""
    base = str(st.get_option("server.baseUrlPath")).strip("/")
    data = {
        "library": f"/{base}/{VIS}" if base else f"/{VIS}",
        "nodes": columns(graph.network.nodes),
        "edges": columns(graph.network.edges),
        "options": graph.network.options,
        "frames": columns([asdict(frame) for frame in graph.frames]),
        "headings": [asdict(heading) for heading in graph.headings],
        "legend": graph.legend,
        "height": round(min(HEIGHT, max(LEAST_HEIGHT, graph.height + 80))),
        **asdict(view),
    }
    seen: dict[str, Any] | None = _CANVAS(data=data, key=key, on_seen_change=lambda: None).seen
    return Event(seen["kind"], seen["id"], seen.get("second")) if seen else None


def columns(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows of equal keys by column, in a third of the bytes: one value where all are the same, else a list of values,
    or of places among the few values that there are."""
    sent: dict[str, Any] = {"count": len(rows), "same": {}, "each": {}, "few": {}}
    for key in rows[0] if rows else ():
        values = [row[key] for row in rows]
        known = list({repr(value): value for value in values}.values())
        if len(known) == 1:
            sent["same"][key] = known[0]
        elif len(known) < FEW:
            place = {repr(value): i for i, value in enumerate(known)}
            sent["few"][key] = {"values": known, "at": [place[repr(value)] for value in values]}
        else:
            sent["each"][key] = values
    return sent
