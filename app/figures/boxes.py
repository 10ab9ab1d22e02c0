"""What stands in the boxes of the kernel graph, and how the boxes of one kernel are set inside its frame."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusionscope.app import style
from fusionscope.app.figures.layout import Point, Size
from fusionscope.storage.queries.fusion import Flow, Group, Lowering

CHARACTER, LINE, PADDING = 7.3, 16.0, 10.0  # pixels of the canvas font at scale 1
LABEL_LENGTH, LEAST_WIDTH = 22, 84.0
MARGIN, TITLE, GAP = 10.0, 18.0, 24.0  # of a frame: around its boxes, for its name, between boxes
MOST_ROWS = 4  # boxes in a column of a frame
VIEWS = re.compile(
    "alias|as_strided|expand|getitem|permute|reshape|select|slice|split|squeeze|t|transpose|unbind|unsqueeze|view"
)
GENERATED = re.compile(r"^(cpp|triton_\w{3})_fused_")
PREFIXES = re.compile(r"^(extern_kernels\.|torch\.ops\.)?(aten\.)?")


@dataclass(frozen=True, slots=True)
class Box:
    """A fusion group as it is drawn."""

    group: Group
    name: str
    lines: tuple[str, ...]  # the first is the name, shortened

    @property
    def size(self) -> Size:
        """Room for the longest line."""
        width = max(map(len, self.lines)) * CHARACTER + 2 * PADDING
        return max(width, LEAST_WIDTH), len(self.lines) * LINE + PADDING


@dataclass(frozen=True, slots=True)
class Unit:
    """What the layout places: the boxes that one kernel call runs, in columns inside a frame, or a single box."""

    boxes: tuple[Box, ...]

    @property
    def framed(self) -> bool:
        """Whether there is a frame to draw."""
        return len(self.boxes) > 1

    @property
    def columns(self) -> list[tuple[Box, ...]]:
        """Boxes from top to bottom, then to the right."""
        rows = math.ceil(len(self.boxes) / math.ceil(len(self.boxes) / MOST_ROWS))
        return [self.boxes[start : start + rows] for start in range(0, len(self.boxes), rows)]

    @property
    def size(self) -> Size:
        """The frame's size, or the box's own."""
        if not self.framed:
            return self.boxes[0].size
        width = sum(_breadth(column) + MARGIN for column in self.columns) + MARGIN
        height = max(sum(box.size[1] + GAP for box in column) - GAP for column in self.columns)
        return width, height + 2 * MARGIN + TITLE

    def places(self, centre: Point) -> list[Point]:
        """Centres of the boxes when the unit stands at `centre`."""
        if not self.framed:
            return [centre]
        width, height = self.size
        left, top = centre[0] - width / 2 + MARGIN, centre[1] - height / 2 + TITLE + MARGIN
        found = []
        for column in self.columns:
            y = top
            for box in column:
                found.append((left + _breadth(column) / 2, y + box.size[1] / 2))
                y += box.size[1] + GAP
            left += _breadth(column) + MARGIN
        return found


def units(groups: Sequence[Group], flows: Sequence[Flow], lowerings: Sequence[Lowering]) -> dict[str, Unit]:
    """Groups by the kernel call that runs them.

    A group that needs no kernel (a concatenation in place, an output of a library call) joins the last call that writes
    for it: apart from it, it could stand between two groups of one call, and the units would form a cycle.
    """
    again = _computed_again(lowerings)
    calls = {group.group_id: group.call for group in groups}
    for group in groups:
        if group.call is None:
            written = (calls[flow.src] for flow in flows if flow.dst == group.group_id)
            calls[group.group_id] = max((call for call in written if call is not None), default=None)
    found: dict[str, list[Group]] = {}
    for group in groups:
        call = calls[group.group_id]
        found.setdefault(group.group_id if call is None else f"call {call}", []).append(group)
    return {
        name: Unit(tuple(_box(group, len(inside) > 1, again.get(group.group_id, ())) for group in inside))
        for name, inside in found.items()
    }


def short_kernel(name: str) -> str:
    """A kernel's name without the parts that every kernel bears."""
    return PREFIXES.sub("", GENERATED.sub("", name)).removesuffix(".default")


def operators(group: Group) -> str:
    """What a group computes, by operator; views only where there is nothing else. A copy is made for its last one."""
    if group.kind == "layout":
        return f"copy for {_operator(group.targets[-1])}"
    names = [_operator(target) for target in group.targets]
    return ", ".join(dict.fromkeys([name for name in names if not VIEWS.fullmatch(name)] or names)) or group.group_id


def _breadth(column: Sequence[Box]) -> float:
    return max(box.size[0] for box in column)


def _operator(target: str) -> str:
    """`add` for aten.add.Tensor, `getitem` for <built-in function getitem>."""
    namespaced = target.removeprefix("<built-in function ").removesuffix(">").split(".")
    return namespaced[min(1, len(namespaced) - 1)]


def _computed_again(lowerings: Sequence[Lowering]) -> dict[str, tuple[str, ...]]:
    """For each group, the producers that it computes for itself because lowering inlined them."""
    found: dict[str, tuple[str, ...]] = {}
    for lowering in lowerings:
        if not lowering.realized:
            for group in lowering.groups:
                found[group] = (*found.get(group, ()), lowering.node)
    return found


def _box(group: Group, framed: bool, again: Sequence[str]) -> Box:
    """Its kernel (its operators in a frame, which bears that name), how much it does, what was inlined into it."""
    name = operators(group) if framed or group.kernel is None else short_kernel(group.kernel)
    moved = (group.bytes_read or 0) + (group.bytes_written or 0)
    work = "no work" if group.kind == "nop" else style.plural(len(group.ops), "op")
    facts = f"{work} · {style.size(moved)}" if moved else work
    inlined = (f"inlined: {', '.join(again)}",) if again else ()
    return Box(group, name, tuple(style.short(line, LABEL_LENGTH) for line in (name, facts, *inlined)))
