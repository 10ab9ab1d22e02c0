"""The kernel graph: one box per fusion group, framed by the kernel that runs it; a pyvis network with fixed places."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pyvis.network import Network

from fusionscope.app import style
from fusionscope.app.figures.layout import Point, Size, layered
from fusionscope.storage.queries.fusion import Decision, Flow, Group, Lowering

VIEWPORT = (840.0, 560.0)  # of the canvas in pixels, less its margin
CHARACTER, LINE, PADDING = 7.3, 16.0, 10.0  # pixels of the canvas font at scale 1
LABEL_LENGTH = 22
FRAME, FRAME_TITLE, FRAME_ROWS = (
    10.0,
    18.0,
    4,
)  # margin of a frame around the groups of one kernel, room for its name, boxes in a column
VIEWS = frozenset(
    ("alias", "as_strided", "expand", "getitem", "permute", "reshape", "select", "slice", "split", "squeeze", "t")
    + ("transpose", "unbind", "unsqueeze", "view")
)
REFUSALS_DRAWN = 24
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
    height: float  # in pixels at scale 1


def kernel_graph(
    groups: Sequence[Group], flows: Sequence[Flow], lowerings: Sequence[Lowering], refused: Sequence[Decision] = ()
) -> KernelGraph:
    """Boxes for groups, a frame where one kernel runs several, edges as wide as the bytes they carry (logarithmic).

    `refused`: pairs to join by a dashed line, where they ended in different groups.
    """
    again = _computed_again(lowerings)
    units = _units(groups)
    boxes = {
        group.group_id: _lines(group, len(inside) > 1, again.get(group.group_id, ()))
        for inside in units.values()
        for group in inside
    }
    sizes = {name: _size(lines) for name, lines in boxes.items()}
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
    network.edges.extend(_edges(flows, {node["id"]: (node["x"], node["y"]) for node in network.nodes}))
    network.edges.extend(_refusals(refused))
    bottoms = [centres[unit][1] + unit_sizes[unit][1] / 2 for unit in units]
    return KernelGraph(network, frames, max(bottoms, default=0.0))


def short_kernel(name: str) -> str:
    """A kernel's name without the parts that every kernel bears."""
    return (
        GENERATED.sub("", name)
        .removeprefix("extern_kernels.")
        .removeprefix("torch.ops.")
        .removeprefix("aten.")
        .removesuffix(".default")
    )


def _computed_again(lowerings: Sequence[Lowering]) -> dict[str, tuple[str, ...]]:
    """For each group, the producers that it computes for itself because lowering inlined them."""
    found: dict[str, tuple[str, ...]] = {}
    for lowering in lowerings:
        if not lowering.realized:
            for group in lowering.groups:
                found[group] = (*found.get(group, ()), lowering.node)
    return found


def operators(group: Group) -> str:
    """What a group computes, by operator and without views; the middle goes first where it is long."""
    names = [operator(target) for target in group.targets]
    return ", ".join(dict.fromkeys([name for name in names if name not in VIEWS] or names)) or group.group_id


def operator(target: str) -> str:
    """`add` for aten.add.Tensor, `getitem` for <built-in function getitem>."""
    return target.removeprefix("<built-in function ").removesuffix(">").removeprefix("aten.").split(".")[0]


def _lines(group: Group, framed: bool, again: Sequence[str]) -> tuple[str, ...]:
    """Text in a box: its kernel (inside a frame: its operators), how much it does, and what lowering inlined into it."""
    name = operators(group) if framed or group.kernel is None else short_kernel(group.kernel)
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
    """A single box as it is; several as a grid inside a frame."""
    if len(sizes) == 1:
        return sizes[0]
    columns = _grid(sizes)
    width = sum(max(w for w, _ in column) + FRAME for column in columns) + FRAME
    return width, max(sum(h + FRAME for _, h in column) for column in columns) + FRAME + FRAME_TITLE


def _grid(sizes: Sequence[Size]) -> list[Sequence[Size]]:
    """Columns of a frame, filled from top to bottom."""
    rows = math.ceil(len(sizes) / math.ceil(len(sizes) / FRAME_ROWS))
    return [sizes[start : start + rows] for start in range(0, len(sizes), rows)]


def _stack(sizes: Sequence[Size], centre: Point) -> list[Point]:
    """Centres of the boxes of a unit."""
    if len(sizes) == 1:
        return [centre]
    width, height = _unit_size(sizes)
    left, top = centre[0] - width / 2 + FRAME, centre[1] - height / 2 + FRAME_TITLE + FRAME
    places = []
    for column in _grid(sizes):
        breadth, y = max(w for w, _ in column), top
        for _, high in column:
            places.append((left + breadth / 2, y + high / 2))
            y += high + FRAME
        left += breadth + FRAME
    return places


def _frame(group: Group, size: Size, centre: Point) -> Frame:
    (width, height), (x, y) = size, centre
    return Frame(
        style.short(short_kernel(group.kernel or ""), int(width / CHARACTER)),
        x - width / 2,
        y - height / 2,
        width,
        height,
    )


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


def _edges(flows: Sequence[Flow], places: Mapping[str, Point]) -> list[dict[str, Any]]:
    most = max((flow.bytes or 0 for flow in flows), default=0)
    return [
        {
            "id": f"{flow.src}→{flow.dst}",
            "from": flow.src,
            "to": flow.dst,
            "width": _edge_width(flow.bytes, most),
            "title": f"{', '.join(flow.buffers)}\n{style.size(flow.bytes)}",
            "color": {"opacity": 0.5 if _near(places[flow.src], places[flow.dst]) else 0.16},
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
            "title": f"refused: {decision.reason or 'torch gave no reason'}\n{style.size(decision.shared_bytes)} shared",
        }
        for (a, b), decision in list(largest.items())[:REFUSALS_DRAWN]
    ]


def _near(src: Point, dst: Point) -> bool:
    """Whether an edge stays inside a column: those that run across the picture are drawn fainter."""
    return abs(dst[0] - src[0]) < 260 and dst[1] > src[1]


def _edge_width(count: int | None, most: int) -> float:
    """1 to 4 pixels over the three decades below the largest edge; 1 where the bytes are not recorded."""
    if not count or not most:
        return 1.0
    return round(1 + 3 * max(0.0, 1 + math.log10(count / most) / 3), 1)
