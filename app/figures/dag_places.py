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
    picture.edges = list(nest.edges())
    return picture


@dataclass(frozen=True, slots=True)
class _Joint:
    """The innermost open item that holds both ends of an edge, and from there the items that lead to each end."""

    holder: str
    src: tuple[str, ...]
    dst: tuple[str, ...]


class _Nest:
    """Layouts of all open items, by their id."""

    def __init__(self, tree: Tree) -> None:
        self._paths: dict[str, tuple[str, ...]] = {}
        self._walk(tree.items, ())
        self._links: dict[str, list[tuple[str, str]]] = {}
        self._rims: dict[str, dict[str, None]] = {}  # of an open item: those inside it that are joined to outside
        self._between: dict[tuple[str, str], tuple[_Joint, list[Stream]]] = {}  # by the visible boxes at both ends
        for stream in tree.streams:
            self._join(stream)
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

    def _join(self, stream: Stream) -> None:
        """Add a stream to those between the same two boxes; the first one joins the items that hold them."""
        src, dst = self._paths.get(stream.src), self._paths.get(stream.dst)
        if src is None or dst is None or src == dst:
            return
        ends = src[-1], dst[-1]
        if ends in self._between:
            self._between[ends][1].append(stream)
            return
        depth = 0
        while depth < min(len(src), len(dst)) and src[depth] == dst[depth]:
            depth += 1
        if depth == min(len(src), len(dst)):
            return  # one holds the other
        joint = _Joint(src[depth - 1] if depth else ROOT, src[depth:], dst[depth:])
        self._between[ends] = joint, [stream]
        self._links.setdefault(joint.holder, []).append((joint.src[0], joint.dst[0]))
        for path in (joint.src, joint.dst):
            for holder, inner in pairwise(path):
                self._rims.setdefault(holder, {})[inner] = None

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

    def edges(self) -> Iterable[Edge]:
        """One edge per pair of visible boxes, all streams between them added up."""
        for (src, dst), (joint, streams) in self._between.items():
            sizes = {stream.buffer: stream.bytes for stream in streams}
            known = [count for count in sizes.values() if count is not None]
            memory = any(stream.materialised for stream in streams)
            yield Edge(src, dst, tuple(sizes), sum(known) if known else None, memory, self._points(joint))

    def _points(self, joint: _Joint) -> tuple[Point, ...]:
        """Out of the frames that hold the one end, along the route between the outermost, into those of the other."""
        points: list[Point] = []
        for frame, inner in reversed(list(pairwise(joint.src))):
            points += self._shifted(frame, self._layouts[frame].outs[inner], points)
        route = self._layouts[joint.holder].routes[joint.src[0], joint.dst[0]]
        points += self._shifted(joint.holder, route, points)
        for frame, inner in pairwise(joint.dst):
            points += self._shifted(frame, self._layouts[frame].ins[inner], points)
        return tuple(points)

    def _shifted(self, holder: str, route: Sequence[Point], before: Sequence[Point]) -> list[Point]:
        """A route inside a frame as points of the picture, level with the rim where it goes on from another."""
        left, top = self._offsets[holder]
        points = [(left + x, top + y) for x, y in route]
        if before and before[-1][0] != points[0][0]:
            return [(before[-1][0], points[0][1]), *points] if before[-1][1] != points[0][1] else points
        return points
