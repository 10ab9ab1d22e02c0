"""The kernel graph: one box per fusion group, framed by the kernel that runs it; a pyvis network with fixed places."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pyvis.network import Network

from fusionscope.app import style
from fusionscope.app.figures.boxes import CHARACTER, Box, Unit, short_kernel, units
from fusionscope.app.figures.layout import Point, layered
from fusionscope.storage.queries.fusion import Decision, Flow, Group, Lowering

VIEWPORT = (840.0, 560.0)  # of the canvas in pixels, less its margin
REFUSALS_DRAWN = 24
NEAR = 260.0  # pixels: an edge that goes further to the side, or up, leaves its column
FALL = {"enabled": True, "type": "cubicBezier", "forceDirection": "vertical", "roundness": 0.45}
BOW = {"enabled": True, "type": "curvedCW", "roundness": 0.3}  # inside a frame, around the boxes between
SWING = {"enabled": True, "type": "curvedCCW", "roundness": 0.35}
OPTIONS = {
    "physics": {"enabled": False},
    "interaction": {"hover": True, "dragNodes": False, "multiselect": False, "tooltipDelay": 120},
    "edges": {"arrows": {"to": {"enabled": True, "scaleFactor": 0.4}}, "selectionWidth": 1, "hoverWidth": 0.5},
}


@dataclass(frozen=True, slots=True)
class Frame:
    """The outline around the groups that one kernel call runs."""

    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class KernelGraph:
    """The picture as data: pyvis' nodes, edges and options, and the frames behind them."""

    network: Network
    frames: list[Frame]
    height: float  # in pixels at scale 1


def kernel_graph(
    groups: Sequence[Group], flows: Sequence[Flow], lowerings: Sequence[Lowering], refused: Sequence[Decision] = ()
) -> KernelGraph:
    """Boxes for groups, a frame where one kernel runs several, edges as wide as the bytes they carry (logarithmic).

    `refused`: pairs to join by a dashed line, where they ended in different groups.
    """
    placed = units(groups, flows, lowerings)
    unit_of = {box.group.group_id: name for name, unit in placed.items() for box in unit.boxes}
    sizes = {name: unit.size for name, unit in placed.items()}
    centres = layered(sizes, [(unit_of[flow.src], unit_of[flow.dst]) for flow in flows], VIEWPORT)
    network = Network(directed=True)
    network.set_options(json.dumps(OPTIONS))
    for name, unit in placed.items():
        network.nodes.extend(map(_node, unit.boxes, unit.places(centres[name])))
    network.edges.extend(_edges(flows, {node["id"]: (node["x"], node["y"]) for node in network.nodes}, unit_of))
    network.edges.extend(_refusals(refused))
    frames = [_frame(unit, centres[name]) for name, unit in placed.items() if unit.framed]
    return KernelGraph(network, frames, max((y + sizes[name][1] / 2 for name, (_, y) in centres.items()), default=0.0))


def _frame(unit: Unit, centre: Point) -> Frame:
    (width, height), (x, y) = unit.size, centre
    name = short_kernel(next((box.group.kernel for box in unit.boxes if box.group.kernel), ""))
    return Frame(style.short(name, int(width / CHARACTER)), x - width / 2, y - height / 2, width, height)


def _node(box: Box, place: Point) -> dict[str, Any]:
    """A pyvis node; the canvas draws `lines` in a box of this size and colour."""
    return {
        "id": box.group.group_id,
        "label": box.name,
        "lines": box.lines,
        "title": _tooltip(box.group),
        "shape": "custom",
        "boxWidth": round(box.size[0]),
        "boxHeight": round(box.size[1]),
        "kind": box.group.kind,
        "fill": style.KIND_COLOURS[box.group.kind],
        "dashed": box.group.recomputed,
        "x": round(place[0]),
        "y": round(place[1]),
    }


def _tooltip(group: Group) -> str:
    facts = [
        group.kernel or group.group_id,
        f"{style.KIND_NAMES[group.kind]}, {group.backend or 'no kernel'}",
        f"{style.plural(len(group.members), 'scheduler node')}, {style.plural(len(group.ops), 'op')}",
        f"reads {style.size(group.bytes_read)}, writes {style.size(group.bytes_written)}",
        style.short(", ".join(group.ops), 80),
    ]
    return "\n".join([*facts, "computed again in the backward pass"] if group.recomputed else facts)


def _edges(flows: Sequence[Flow], places: Mapping[str, Point], unit_of: Mapping[str, str]) -> list[dict[str, Any]]:
    most = max((flow.bytes or 0 for flow in flows), default=0)
    return [
        {
            "id": f"{flow.src}→{flow.dst}",
            "from": flow.src,
            "to": flow.dst,
            "width": _edge_width(flow.bytes, most),
            "title": f"{', '.join(flow.buffers)}\n{style.size(flow.bytes)}",
            "color": {"opacity": 0.5 if _near(places[flow.src], places[flow.dst]) else 0.16},
            "smooth": BOW if unit_of[flow.src] == unit_of[flow.dst] else FALL,
        }
        for flow in flows
    ]


def _refusals(refused: Sequence[Decision]) -> list[dict[str, Any]]:
    """One dashed line per pair of groups, with the reason of its largest refusal."""
    largest: dict[tuple[str, str], Decision] = {}
    for decision in sorted(refused, key=lambda decision: -(decision.shared_bytes or 0)):
        for a, b in product(decision.a_groups, decision.b_groups):
            if a != b and (b, a) not in largest:
                largest.setdefault((a, b), decision)
    return [
        {
            "id": f"refused {a} {b}",
            "from": a,
            "to": b,
            "dashes": [5, 4],
            "width": 1.5,
            "arrows": {"to": {"enabled": False}},
            "color": {"color": style.LOSS, "highlight": style.LOSS, "hover": style.LOSS, "opacity": 0.9},
            "smooth": SWING,
            "title": f"refused: {decision.reason or 'no reason given'}\n{style.size(decision.shared_bytes)} shared",
        }
        for (a, b), decision in list(largest.items())[:REFUSALS_DRAWN]
    ]


def _near(src: Point, dst: Point) -> bool:
    """Whether an edge stays in its column; those that run across the picture are drawn fainter."""
    return abs(dst[0] - src[0]) < NEAR and dst[1] > src[1]


def _edge_width(count: int | None, most: int) -> float:
    """1 to 4 pixels over the three decades below the largest edge; 1 where the bytes are not recorded."""
    if not count or not most:
        return 1.0
    return round(1 + 3 * max(0.0, 1 + math.log10(count / most) / 3), 1)
