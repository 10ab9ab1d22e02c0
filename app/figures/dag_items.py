"""The fusion graph as nested items: modules hold kernel calls, calls hold groups, groups hold FX nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from fusionscope.app import style
from fusionscope.app.figures.boxes import group_lines, group_title, is_view, label, op_lines, op_title, short_kernel
from fusionscope.storage.queries.fusion import Group, Lowering
from fusionscope.storage.queries.fusion_ops import Handover, Op, Use

LEVELS = ("module", "kernel", "op")
NO_MODULE = "the model itself"
OTHER = "~"  # before the ids of the second graph of a picture


@dataclass(frozen=True, slots=True)
class Item:
    """A box, or a frame around further items when it is open."""

    id: str
    kind: str  # module, call, group, op
    lines: tuple[str, ...]
    title: str
    groups: tuple[Group, ...]
    work: str  # kind of work, a key of style.KIND_COLOURS; "mixed" for a module
    marks: tuple[str, ...] = ()  # again, library, copy
    children: tuple[Item, ...] = ()
    is_open: bool = False
    can_open: bool = False
    part: int = 0  # number of the stretch of one module that it belongs to

    @property
    def prefix(self) -> str:
        """What its id bears since it is of the second graph."""
        return OTHER if self.id.startswith(OTHER) else ""


@dataclass(frozen=True, slots=True)
class Stream:
    """A value that flows between two items."""

    src: str
    dst: str
    buffer: str
    bytes: int | None
    materialised: bool


@dataclass(frozen=True, slots=True)
class Facts:
    """The rows that a graph is drawn from; `ops` and `uses` only where groups are to be opened."""

    groups: Sequence[Group]
    handovers: Sequence[Handover]
    lowerings: Sequence[Lowering]
    ops: Sequence[Op] = ()
    uses: Sequence[Use] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """Items of one graph with the data between them; `parts` are the names of its stretches."""

    items: tuple[Item, ...]
    streams: tuple[Stream, ...]
    parts: tuple[str, ...]


@dataclass(slots=True)
class _Builder:
    facts: Facts
    level: str
    toggled: frozenset[str]
    prefix: str
    inside: dict[str, list[Op]] = field(default_factory=dict)
    again: dict[str, list[str]] = field(default_factory=dict)

    def group(self, group: Group, framed: bool, part: int) -> Item:
        name = self.prefix + group.group_id
        ops = self.inside.get(group.group_id, [])
        marks = _marks(group, bool(self.again.get(group.group_id)))
        return Item(
            name,
            "group",
            group_lines(group, framed, self.again.get(group.group_id, ())),
            group_title(group),
            (group,),
            group.kind,
            marks,
            tuple(self.op(group, op) for op in ops) if len(ops) > 1 else (),
            len(ops) > 1 and (name in self.toggled) != (self.level == "op"),
            len(group.ops) > 1,
            part,
        )

    def op(self, group: Group, op: Op) -> Item:
        marks = ("again",) if op.recomputed or op.node in self.again.get(group.group_id, ()) else ()
        work = "view" if is_view(op) else group.kind
        return Item(f"{self.prefix}{group.group_id}/{op.node}", "op", op_lines(op), op_title(op), (group,), work, marks)

    def call(self, groups: Sequence[Group], part: int) -> Item:
        if len(groups) == 1:
            return self.group(groups[0], False, part)
        kernel = next((group.kernel for group in groups if group.kernel), "") or ""
        inside = tuple(self.group(group, True, part) for group in groups)
        lines = (label(short_kernel(kernel), 32),)
        call = f"{self.prefix}call {groups[0].call}"
        return Item(call, "call", lines, kernel, tuple(groups), "mixed", (), inside, True, False, part)

    def module(self, name: str, calls: Sequence[Item], part: int) -> Item:
        groups = tuple(group for call in calls for group in call.groups)
        moved = sum((group.bytes_read or 0) + (group.bytes_written or 0) for group in groups)
        kernels = len({group.call for group in groups if group.call is not None})
        facts = f"{style.plural(kernels, 'kernel')} · {style.size(moved)}"
        key = f"{self.prefix}module {groups[0].group_id}"
        title = f"{name}\n{facts}\n{style.plural(sum(len(group.ops) for group in groups), 'op')}"
        lines = (label(name), facts)
        return Item(key, "module", lines, title, groups, "mixed", (), tuple(calls), key in self.toggled, True, part)


def tree(facts: Facts, level: str, toggled: frozenset[str], prefix: str = "") -> Tree:
    """The items of a graph at a level; those in `toggled` are open where it closes them, and closed elsewhere."""
    builder = _Builder(facts, level, toggled, prefix)
    for op in facts.ops:
        builder.inside.setdefault(op.group_id, []).append(op)
    for lowering in facts.lowerings:
        for group in lowering.groups if not lowering.realized else ():
            builder.again.setdefault(group, []).append(lowering.node)
    calls = calls_of(facts.groups, facts.handovers)
    stretches = [(name, list(inside)) for name, inside in groupby(calls, key=module_of)]
    items: list[Item] = []
    for part, (name, inside) in enumerate(stretches):
        built = [builder.call(groups, part) for groups in inside]
        items += [builder.module(name, built, part)] if level == "module" else built
    return Tree(tuple(items), tuple(_streams(facts, items, prefix)), tuple(name for name, _ in stretches))


def calls_of(groups: Sequence[Group], handovers: Sequence[Handover]) -> list[list[Group]]:
    """Groups by the kernel call that runs them, in schedule order.

    A group that needs no kernel (a concatenation in place, an output of a library call) joins the last call that writes
    for it: apart from it, it could stand between two groups of one call, and the calls would form a cycle.
    """
    calls = {group.group_id: group.call for group in groups}
    written: dict[str, list[str]] = {}
    for handover in handovers:
        written.setdefault(handover.dst_group, []).append(handover.src_group)
    for group in groups:
        if group.call is None:
            known = [call for src in written.get(group.group_id, ()) if (call := calls[src]) is not None]
            calls[group.group_id] = max(known, default=None)
    found: dict[str | int, list[Group]] = {}
    for group in groups:
        call = calls[group.group_id]
        found.setdefault(group.group_id if call is None else call, []).append(group)
    return list(found.values())


def module_of(groups: Sequence[Group]) -> str:
    """The part of the model that a call belongs to: that of most of its ops, of the last ones among equals."""
    found = Counter(map(_part, (path for group in reversed(groups) for path in reversed(group.modules) if path)))
    return found.most_common(1)[0][0] if found else NO_MODULE


def _part(path: str) -> str:
    """`blocks.0` of blocks.0.attention: the first repeated module on the way, else the outermost."""
    names = path.split(".")
    repeated = next((i for i, name in enumerate(names) if name.isdigit()), 0)
    return ".".join(names[: repeated + 1])


def _marks(group: Group, inlined: bool) -> tuple[str, ...]:
    found = {
        "again": group.recomputed or inlined,
        "library": group.kind == "extern",
        "copy": group.kind == "layout",
    }
    return tuple(mark for mark, holds in found.items() if holds)


def _streams(facts: Facts, items: Iterable[Item], prefix: str) -> Iterable[Stream]:
    """Data between the innermost items there are: FX nodes of open groups, else groups."""
    opened = {item.id.removeprefix(prefix) for item in _all(items) if item.kind == "group" and item.is_open}
    ends = _Ends(facts, opened)
    for handover in facts.handovers:
        src, dst = ends.source(handover), ends.target(handover)
        if handover.src_group != handover.dst_group:
            yield Stream(prefix + src, prefix + dst, handover.buffer, handover.bytes, handover.materialised)
    yield from _inner(facts, opened, prefix)


def _inner(facts: Facts, opened: set[str], prefix: str) -> Iterable[Stream]:
    """Values between the FX nodes of one open group; those that are a buffer of their own go through memory."""
    where: dict[str, list[str]] = {}
    size = {op.node: op.bytes for op in facts.ops}
    for op in facts.ops:
        if op.group_id in opened:
            where.setdefault(op.node, []).append(op.group_id)
    for use in facts.uses:
        for group in where.get(use.src, ()):
            if group in where.get(use.dst, ()):
                yield Stream(f"{prefix}{group}/{use.src}", f"{prefix}{group}/{use.dst}", use.src, size[use.src], False)


def _all(items: Iterable[Item]) -> Iterable[Item]:
    for item in items:
        yield item
        yield from _all(item.children)


class _Ends:
    """Which FX node of an open group writes or reads a buffer."""

    def __init__(self, facts: Facts, opened: set[str]) -> None:
        self._opened = opened
        self._ops: dict[tuple[str, str], list[str]] = {}
        for op in facts.ops:
            for ir_node in op.ir_nodes:
                self._ops.setdefault((op.group_id, ir_node), []).append(op.node)
        self._users: dict[str, set[str]] = {}
        for use in facts.uses:
            self._users.setdefault(use.src, set()).add(use.dst)

    def source(self, handover: Handover) -> str:
        """The last FX node that the writing scheduler node computes: what it hands on."""
        ops = self._ops.get((handover.src_group, handover.src))
        return f"{handover.src_group}/{ops[-1]}" if ops and handover.src_group in self._opened else handover.src_group

    def target(self, handover: Handover) -> str:
        """The first FX node of the reading scheduler node that uses it."""
        ops = self._ops.get((handover.dst_group, handover.dst))
        if not ops or handover.dst_group not in self._opened:
            return handover.dst_group
        written = self._ops.get((handover.src_group, handover.src), [""])[-1]
        users = self._users.get(written, set())
        return f"{handover.dst_group}/{next((op for op in ops if op in users), ops[0])}"


def composition(groups: Sequence[Group]) -> list[tuple[str, float]]:
    """Share of each kind of work, by the number of groups, in the order of the palette."""
    counts: Mapping[str, int] = Counter(group.kind for group in groups if group.kind != "nop")
    total = sum(counts.values())
    return [(kind, counts[kind] / total) for kind in style.KIND_COLOURS if counts.get(kind)]
