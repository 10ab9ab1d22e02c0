"""The fusion graph as a picture: a pyvis network with fixed places, frames behind its boxes, and routed edges."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from pyvis.network import Network

from fusionscope.app import style
from fusionscope.app.figures.boxes import label
from fusionscope.app.figures.dag_colours import Paint
from fusionscope.app.figures.dag_items import Tree, composition
from fusionscope.app.figures.dag_places import Edge, Picture, Placed, arrange
from fusionscope.app.figures.layout import Point, Size
from fusionscope.app.figures.layout_routes import is_cornered
from fusionscope.storage.queries.fusion import Decision

Places = dict[str, tuple[Point, Size]]  # centre and size of boxes and frames, by id

VIEWPORT: Size = (810.0, 560.0)  # of the canvas in pixels, less its margin
REFUSALS_DRAWN = 24
HEAD = 46.0  # pixels between the top of a column and its heading
APART = 150.0  # pixels between two graphs of one picture
OPTIONS = {
    "physics": {"enabled": False},
    "interaction": {"hover": True, "dragNodes": False, "multiselect": False, "tooltipDelay": 120},
}


@dataclass(frozen=True, slots=True)
class Frame:
    """The outline of an open item."""

    id: str
    kind: str  # module, call, group, graph
    label: str
    title: str
    work: str
    closes: bool  # a click on its sign closes it
    x: float  # left, top
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Heading:
    """What stands above a column."""

    text: str
    x: float
    y: float
    width: float


@dataclass(slots=True)
class KernelGraph:
    """The picture as data: pyvis' nodes and edges, the frames behind them, headings of columns, and its size."""

    network: Network
    frames: list[Frame] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    legend: list[dict[str, str]] = field(default_factory=list)
    width: float = 0.0  # pixels at scale 1
    height: float = 0.0


def kernel_graph(
    trees: Sequence[tuple[str, Tree]],
    paint: Paint,
    links: Sequence[tuple[str, str, str]] = (),
    refused: Sequence[Decision] = (),
) -> KernelGraph:
    """Boxes and frames for every item, edges as wide as the bytes they carry (logarithmic).

    `trees`: graphs side by side, each with its name. `links`: values that one saves for the other, as (id, id, title).
    `refused`: pairs of the first graph to join by a dashed line, where they ended in different groups.
    """
    network = Network(directed=True)
    network.set_options(json.dumps(OPTIONS))
    drawn = KernelGraph(network)
    viewport = (VIEWPORT[0] / len(trees), VIEWPORT[1])
    for name, tree in trees:
        picture = arrange(tree, viewport)
        left = drawn.width + APART if drawn.width else 0.0
        _draw(drawn, picture, tree, paint, (left, HEAD), name if len(trees) > 1 else None)
        drawn.width, drawn.height = left + picture.size[0], max(drawn.height, picture.size[1] + HEAD)
    places = _places(drawn) if links or refused else {}
    network.edges.extend(_links(places, links))
    network.edges.extend(_refusals(places, refused))
    drawn.legend = _legend(drawn, paint)
    return drawn


def _draw(drawn: KernelGraph, picture: Picture, tree: Tree, paint: Paint, offset: Point, name: str | None) -> None:
    dx, dy = offset
    drawn.frames += [_frame(placed, dx, dy) for placed in picture.frames]
    drawn.network.nodes.extend(_node(placed, paint, dx, dy) for placed in picture.boxes)
    most = max((edge.bytes or 0 for edge in picture.edges), default=0)
    drawn.network.edges.extend(_edge(edge, most, dx, dy) for edge in picture.edges)
    part_of = {item.id: item.part for item in tree.items}
    several = len(tree.parts) > 1 and len(picture.columns) > 1 and tree.items[0].kind != "module"
    for column in picture.columns:
        parts = [part_of[item] for item in column.names]
        text = " · ".join(filter(None, (name, _parts(tree, min(parts), max(parts)) if several and parts else None)))
        if text:
            drawn.headings.append(Heading(text, dx + column.left, dy - HEAD, column.right - column.left))


def _parts(tree: Tree, first: int, last: int) -> str:
    """`blocks.0`, `blocks.0–5`, `norm – head`."""
    a, b = label(tree.parts[first]), label(tree.parts[last])
    (holder, _, start), (same, _, end) = a.rpartition("."), b.rpartition(".")
    if holder == same and start.isdigit() and end.isdigit() and int(start) < int(end):
        return f"{a}–{end}"
    return a if a == b else f"{a} – {b}"


def _frame(placed: Placed, dx: float, dy: float) -> Frame:
    item, (x, y), (width, height) = placed.item, placed.centre, placed.size
    left, top = round(dx + x - width / 2), round(dy + y - height / 2)
    return Frame(
        item.id, item.kind, item.lines[0], item.title, item.work, item.can_open, left, top, round(width), round(height)
    )


def _node(placed: Placed, paint: Paint, dx: float, dy: float) -> dict[str, Any]:
    """A pyvis node; the canvas draws `lines` in a box of this size and colour."""
    item = placed.item
    colour, figure = paint.of(item)
    lines = item.lines if figure is None else (item.lines[0], figure, *item.lines[2:])
    bar = composition(item.groups) if item.kind == "module" else []
    return {
        "id": item.id,
        "lines": lines,
        "title": item.title,
        "boxWidth": round(placed.size[0]),
        "boxHeight": round(placed.size[1]),
        "kind": item.kind,
        "work": item.work,
        "fill": colour,
        "marks": item.marks,
        "opens": item.can_open,
        "bar": [(style.KIND_COLOURS[kind], round(share, 3)) for kind, share in bar] if paint.by_kind else [],
        "x": round(placed.centre[0] + dx),
        "y": round(placed.centre[1] + dy),
    }


def _edge(edge: Edge, most: int, dx: float, dy: float) -> dict[str, Any]:
    """A pyvis edge with its own route, which the canvas draws."""
    return {
        "from": edge.src,
        "to": edge.dst,
        "kind": "memory" if edge.materialised else "register",
        "width": _edge_width(edge.bytes, most),
        "cornered": is_cornered(edge.points),
        "title": f"{style.short(', '.join(edge.buffers), 60)}\n{style.size(edge.bytes)}"
        + ("" if edge.materialised else ", stays in registers"),
        "route": [coordinate for x, y in edge.points for coordinate in (round(x + dx), round(y + dy))],
    }


def _edge_width(count: int | None, most: int) -> float:
    """1 to 4 pixels over the three decades below the largest edge; 1 where the bytes are not recorded."""
    if not count or not most:
        return 1.0
    return round(1 + 3 * max(0.0, 1 + math.log10(count / most) / 3), 1)


def _refusals(places: Places, refused: Iterable[Decision]) -> list[dict[str, Any]]:
    """One dashed line per pair of groups that are both in the picture, with the reason of its largest refusal."""
    largest: dict[tuple[str, str], Decision] = {}
    for decision in sorted(refused, key=lambda decision: -(decision.shared_bytes or 0)):
        for a, b in product(decision.a_groups, decision.b_groups):
            if a != b and a in places and b in places and (b, a) not in largest:
                largest.setdefault((a, b), decision)
    return [
        _straight(
            (a, b),
            places,
            "refused",
            f"refused: {decision.reason or 'no reason given'}\n{style.size(decision.shared_bytes)} shared",
        )
        for (a, b), decision in list(largest.items())[:REFUSALS_DRAWN]
    ]


def _links(places: Places, links: Iterable[tuple[str, str, str]]) -> Iterable[dict[str, Any]]:
    """Lines for values that the forward saves for the backward."""
    for src, dst, title in links:
        if src in places and dst in places:
            yield _straight((src, dst), places, "saved", title)


def _straight(ends: tuple[str, str], places: Places, kind: str, title: str) -> dict[str, Any]:
    """An edge from side to side of two boxes."""
    ((x_a, y_a), (width_a, _)), ((x_b, y_b), (width_b, _)) = places[ends[0]], places[ends[1]]
    side = 1 if x_b >= x_a else -1
    meet = side if abs(x_b - x_a) > (width_a + width_b) / 2 else -side  # one above the other: both at the same side
    route = [round(x_a + side * width_a / 2), round(y_a), round(x_b - meet * width_b / 2), round(y_b)]
    return {
        "from": ends[0],
        "to": ends[1],
        "kind": kind,
        "width": 1.5,
        "cornered": False,
        "title": title,
        "route": route,
    }


def _places(drawn: KernelGraph) -> Places:
    found = {
        node["id"]: ((node["x"], node["y"]), (node["boxWidth"], node["boxHeight"])) for node in drawn.network.nodes
    }
    for frame in drawn.frames:
        found[frame.id] = (frame.x + frame.width / 2, frame.y + frame.height / 2), (frame.width, frame.height)
    return found


def _legend(drawn: KernelGraph, paint: Paint) -> list[dict[str, str]]:
    """What the colours, marks and lines of this picture mean."""
    nodes, edges = drawn.network.nodes, drawn.network.edges
    bars = {colour for node in nodes for colour, _ in node["bar"]}
    works = {node["work"] for node in nodes} | {frame.work for frame in drawn.frames}
    entries = paint.legend(works | {kind for kind, colour in style.KIND_COLOURS.items() if colour in bars})
    marks = {mark for node in nodes for mark in node["marks"]}
    words = {"again": "computed again", "library": "library call", "copy": "layout copy"}
    entries += [{"mark": mark, "name": words[mark]} for mark in words if mark in marks]
    kinds = {edge["kind"] for edge in edges}
    lines = {
        "memory": "through memory",
        "register": "in registers",
        "saved": "saved for backward",
        "refused": "refused pair",
    }
    return entries + [{"mark": kind, "name": lines[kind]} for kind in lines if kind in kinds]
