"""The kernel graph: one box per fusion group, framed by the kernel that runs it, as a pyvis network with fixed places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyvis.network import Network

from fusionscope.app import style
from fusionscope.app.figures.layout import Point, Size, layered
from fusionscope.storage.queries.fusion import Flow, Group, Lowering

VIEWPORT = (840.0, 560.0)  # of the canvas in pixels, less its margin
CHARACTER, LINE, PADDING = 7.3, 16.0, 10.0  # pixels of the canvas font at scale 1
LABEL_LENGTH = 26
FRAME, FRAME_TITLE = 10.0, 18.0  # margin of a frame around the groups of one kernel, and room for its name
GENERATED = re.compile(r"^(cpp|triton_\w{3})_fused_")
PHYSICS_OFF = {
    "physics": {"enabled": False},
    "interaction": {
        "hover": True,
        "dragNodes": False,
        "multiselect": False,
        "tooltipDelay": 120,
        "hideEdgesOnDrag": False,
        "keyboard": {"enabled": False},
    },
    "edges": {
        "arrows": {"to": {"enabled": True, "scaleFactor": 0.4}},
        "smooth": {"enabled": True, "type": "cubicBezier", "forceDirection": "vertical", "roundness": 0.45},
        "selectionWidth": 1,
        "hoverWidth": 0.5,
    },
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


def kernel_graph(groups: Sequence[Group], flows: Sequence[Flow], lowerings: Sequence[Lowering]) -> KernelGraph:
    """Boxes for groups, a frame where one kernel runs several, edges as wide as the bytes they carry (logarithmic)."""
    again = _computed_again(lowerings)
    boxes = {group.group_id: _lines(group, again.get(group.group_id, ())) for group in groups}
    sizes = {name: _size(lines) for name, lines in boxes.items()}
    units = _units(groups)
    unit_of = {group.group_id: unit for unit, inside in units.items() for group in inside}
    unit_sizes = {unit: _unit_size([sizes[g.group_id] for g in inside]) for unit, inside in units.items()}
    centres = layered(unit_sizes, [(unit_of[f.src], unit_of[f.dst]) for f in flows], VIEWPORT)
    network = Network(directed=True)
    network.set_options(json.dumps(PHYSICS_OFF))
    frames = []
    for unit, inside in units.items():
        places = _stack([sizes[g.group_id] for g in inside], centres[unit])
        for group, place in zip(inside, places, strict=True):
            network.nodes.append(_node(group, boxes[group.group_id], sizes[group.group_id], place))
        if len(inside) > 1:
            frames.append(_frame(inside[0], unit_sizes[unit], centres[unit]))
    network.edges.extend(_edges(flows))
    return KernelGraph(network, frames)


def short_kernel(name: str) -> str:
    """A kernel's name without the parts that every kernel bears."""
    return GENERATED.sub("", name).removeprefix("extern_kernels.").removeprefix("torch.ops.").removesuffix(".default")


def _computed_again(lowerings: Sequence[Lowering]) -> dict[str, tuple[str, ...]]:
    """For each group, the producers that it computes for itself because lowering inlined them."""
    found: dict[str, tuple[str, ...]] = {}
    for lowering in lowerings:
        if not lowering.realized:
            for group in lowering.groups:
                found[group] = (*found.get(group, ()), lowering.node)
    return found


def _lines(group: Group, again: Sequence[str]) -> tuple[str, ...]:
    """Text in a box: what it is, how much it does, and what lowering inlined into it."""
    name = short_kernel(group.kernel) if group.kernel else ", ".join(group.targets) or group.group_id
    moved = (group.bytes_read or 0) + (group.bytes_written or 0)
    facts = style.plural(len(group.ops), "op") + (f" · {style.size(moved)}" if moved else "")
    inlined = (style.short(f"inlined: {', '.join(again)}", LABEL_LENGTH),) if again else ()
    return (style.short(name, LABEL_LENGTH), facts, *inlined)


def _size(lines: Sequence[str]) -> Size:
    return max(max(map(len, lines)) * CHARACTER + 2 * PADDING, 84.0), len(lines) * LINE + PADDING


def _units(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups by the kernel call that runs them; a group without a call stands alone."""
    units: dict[str, list[Group]] = {}
    for group in groups:
        units.setdefault(group.group_id if group.call is None else f"call {group.call}", []).append(group)
    return units


def _unit_size(sizes: Sequence[Size]) -> Size:
    """A single box as it is; several stacked inside a frame."""
    if len(sizes) == 1:
        return sizes[0]
    return max(w for w, _ in sizes) + 2 * FRAME, sum(h + FRAME for _, h in sizes) + FRAME + FRAME_TITLE


def _stack(sizes: Sequence[Size], centre: Point) -> list[Point]:
    """Centres of the boxes of a unit, one below the other."""
    if len(sizes) == 1:
        return [centre]
    x, y = centre
    top = y - _unit_size(sizes)[1] / 2 + FRAME_TITLE + FRAME
    places = []
    for _, height in sizes:
        places.append((x, top + height / 2))
        top += height + FRAME
    return places


def _frame(group: Group, size: Size, centre: Point) -> Frame:
    (width, height), (x, y) = size, centre
    return Frame(style.short(short_kernel(group.kernel or ""), int(width / CHARACTER)), x - width / 2, y - height / 2, width, height)


def _node(group: Group, lines: tuple[str, ...], size: Size, place: Point) -> dict[str, Any]:
    """A pyvis node; the canvas draws `lines` in a box of this size and colour."""
    return {
        "id": group.group_id,
        "label": lines[0],
        "lines": lines,
        "title": _tooltip(group),
        "shape": "custom",
        "boxWidth": round(size[0]),
        "boxHeight": round(size[1]),
        "kind": style.KIND_COLOURS[group.kind],
        "dashed": group.recomputed,
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


def _edges(flows: Sequence[Flow]) -> list[dict[str, Any]]:
    most = max((flow.bytes or 0 for flow in flows), default=0)
    return [
        {
            "id": f"{flow.src}→{flow.dst}",
            "from": flow.src,
            "to": flow.dst,
            "width": _edge_width(flow.bytes, most),
            "title": f"{', '.join(flow.buffers)}\n{style.size(flow.bytes)}",
        }
        for flow in flows
    ]


def _edge_width(count: int | None, most: int) -> float:
    """1 to 4 pixels over the three decades below the largest edge; 1 where the bytes are not recorded."""
    if not count or not most:
        return 1.0
    return round(1 + 3 * max(0.0, 1 + math.log10(count / most) / 3), 1)
