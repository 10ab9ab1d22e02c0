"""Places for nested items: what an open item holds is laid out first, and the item then takes that much room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fusionscope.app.figures.boxes import CHARACTER, box_size, breadth
from fusionscope.app.figures.dag_items import Item, Stream, Tree
from fusionscope.app.figures.layout import Layout, Point, Size, layered
from fusionscope.app.figures.layout_columns import Column

MARGIN, TITLE = 12.0, 20.0  # of a frame: around its items, for its name
INSIDE: Size = (560.0, 420.0)  # that the items of a frame are folded to
ROOT = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """An item with its centre and size."""

    item: Item
    centre: Point
    size: Size


@dataclass(frozen=True, slots=True)
class Edge:
    """A line between two boxes, with all that flows along it."""

    src: str
    dst: str
    buffers: tuple[str, ...]
    bytes: int | None
    materialised: bool
    points: tuple[Point, ...]


@dataclass(slots=True)
class Picture:
    """Boxes, frames from the outside in, edges, and the columns of the outermost level."""

    boxes: list[Placed] = field(default_factory=list)
    frames: list[Placed] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    size: Size = (0.0, 0.0)


def arrange(tree: Tree, viewport: Size) -> Picture:
    """Every item of the tree in its place."""
    nest = _Nest(tree)
    layout = nest.lay_out(ROOT, tree.items, viewport)
    picture = Picture(columns=layout.columns, size=layout.size)
    nest.settle(picture, ROOT, tree.items, (0.0, 0.0))
    picture.edges = list(nest.edges(tree.streams))
    return picture


class _Nest:
    """Layouts of all open items, by their id."""

    def __init__(self, tree: Tree) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}
        self._walk(tree.items, ())
        self._links: dict[str, list[tuple[str, str]]] = {}
        self._rims: dict[str, dict[str, None]] = {}  # of an open item: those inside it that are joined to outside
        for stream in tree.streams:
            if (joint := self._joint(stream)) is not None:
                self._links.setdefault(joint[0], []).append(joint[1:])
                for end, outer in ((stream.src, joint[1]), (stream.dst, joint[2])):
                    path = self._paths[end]
                    for holder, inner in pairwise(path[path.index(outer) :]):
                        self._rims.setdefault(holder, {})[inner] = None
        self._layouts: dict[str, Layout] = {}
        self._offsets: dict[str, Point] = {}

    def _walk(self, items: Iterable[Item], above: tuple[str, ...]) -> None:
        """The visible items that each item is in, from the outside in; what is hidden stands where its holder does."""
        for item in items:
            self._paths[item.id] = path = (*above, item.id)
            if item.is_open:
                self._walk(item.children, path)
            else:
                self._hide(item.children, path)

    def _hide(self, items: Iterable[Item], path: tuple[str, ...]) -> None:
        for item in items:
            self._paths[item.id] = path
            self._hide(item.children, path)

    def _joint(self, stream: Stream) -> tuple[str, str, str] | None:
        """The innermost open item that holds both ends, and the two of its own items that they are in."""
        src, dst = self._paths.get(stream.src), self._paths.get(stream.dst)
        if src is None or dst is None or src == dst:
            return None
        depth = next((i for i, (a, b) in enumerate(zip(src, dst, strict=False)) if a != b), None)
        return None if depth is None else (src[depth - 1] if depth else ROOT, src[depth], dst[depth])

    def lay_out(self, name: str, items: Sequence[Item], viewport: Size) -> Layout:
        """The layout of the items inside `name`."""
        sizes = {item.id: self._size(item) for item in items}
        parts = {item.id: item.part for item in items} if name == ROOT else None
        self._layouts[name] = layout = layered(
            sizes, self._links.get(name, []), viewport, parts, self._rims.get(name, ())
        )
        return layout

    def _size(self, item: Item) -> Size:
        if not item.is_open:
            return box_size(item.lines, item.can_open)
        width, height = self.lay_out(item.id, item.children, INSIDE).size
        title = breadth(item.lines[0]) * CHARACTER + 2 * MARGIN + 16
        return max(width + 2 * MARGIN, title), height + 2 * MARGIN + TITLE

    def settle(self, picture: Picture, name: str, items: Sequence[Item], offset: Point) -> None:
        """Turn places inside frames into places in the picture."""
        self._offsets[name] = offset
        layout = self._layouts[name]
        for item in items:
            x, y = layout.places[item.id]
            centre = (offset[0] + x, offset[1] + y)
            if not item.is_open:
                picture.boxes.append(Placed(item, centre, box_size(item.lines, item.can_open)))
                continue
            inner = self._layouts[item.id].size
            title = breadth(item.lines[0]) * CHARACTER + 2 * MARGIN + 16
            size = max(inner[0] + 2 * MARGIN, title), inner[1] + 2 * MARGIN + TITLE
            picture.frames.append(Placed(item, centre, size))
            corner = (centre[0] - inner[0] / 2, centre[1] - size[1] / 2 + TITLE + MARGIN)
            self.settle(picture, item.id, item.children, corner)

    def edges(self, streams: Iterable[Stream]) -> Iterable[Edge]:
        """One edge per pair of visible boxes, all streams between them added up."""
        found: dict[tuple[str, str], list[Stream]] = {}
        joints: dict[tuple[str, str], tuple[str, str, str]] = {}
        for stream in streams:
            if (joint := self._joint(stream)) is not None:
                ends = self._paths[stream.src][-1], self._paths[stream.dst][-1]
                found.setdefault(ends, []).append(stream)
                joints[ends] = joint
        for (src, dst), same in found.items():
            sizes = {stream.buffer: stream.bytes for stream in same}
            known = [count for count in sizes.values() if count is not None]
            points = self._points(joints[src, dst], self._paths[src], self._paths[dst])
            memory = any(stream.materialised for stream in same)
            yield Edge(src, dst, tuple(sizes), sum(known) if known else None, memory, points)

    def _points(self, joint: tuple[str, str, str], src: tuple[str, ...], dst: tuple[str, ...]) -> tuple[Point, ...]:
        """Out of the frames that hold the one end, along the route between the outermost, into those of the other."""
        holder, a, b = joint
        points: list[Point] = []
        for frame, inner in reversed(list(pairwise(src[src.index(a) :]))):
            points += self._shifted(frame, self._layouts[frame].outs[inner], points)
        points += self._shifted(holder, self._layouts[holder].routes[a, b], points)
        for frame, inner in pairwise(dst[dst.index(b) :]):
            points += self._shifted(frame, self._layouts[frame].ins[inner], points)
        return tuple(points)

    def _shifted(self, holder: str, route: Sequence[Point], before: Sequence[Point]) -> list[Point]:
        """A route inside a frame as points of the picture, level with the rim where it goes on from another."""
        left, top = self._offsets[holder]
        points = [(left + x, top + y) for x, y in route]
        if before and before[-1][0] != points[0][0]:
            return [(before[-1][0], points[0][1]), *points] if before[-1][1] != points[0][1] else points
        return points
