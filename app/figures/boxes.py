"""What stands in the boxes of the fusion graph: names, facts and marks, and the room that they take."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from fusionscope.app import style
from fusionscope.app.figures.layout import Size
from fusionscope.storage.queries.fusion import Group
from fusionscope.storage.queries.fusion_ops import Op

CHARACTER, LINE, PADDING = 7.3, 16.0, 10.0  # pixels of the canvas font at scale 1
LABEL_LENGTH, LEAST_WIDTH = 22, 92.0
SIGN = 2  # characters beside the name
VIEWS = re.compile(
    "alias|as_strided|expand|getitem|permute|reshape|select|slice|split|squeeze|t|transpose|unbind|unsqueeze|view"
)
GENERATED = re.compile(r"^(cpp|triton_\w{3})_fused_")
PREFIXES = re.compile(r"^(extern_kernels\.|torch\.ops\.)?(aten\.)?")


def box_size(lines: Sequence[str], opens: bool) -> Size:
    """Room for the longest line, and beside the first one for the sign of a box that opens."""
    longest = max(breadth(line) + (SIGN if opens and i == 0 else 0) for i, line in enumerate(lines))
    return max(longest * CHARACTER + 2 * PADDING + 4, LEAST_WIDTH), len(lines) * LINE + PADDING


def breadth(text: str) -> int:
    """How many characters' room a text takes: those of East Asian scripts and most symbols are two wide."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def label(text: str, room: int = LABEL_LENGTH) -> str:
    """A name as a box bears it: on one line, without characters that turn or hide others, the middle left out."""
    plain = text if text.isascii() and text.isprintable() else "".join(map(_plain, text[:4000]))
    shown = style.short(plain, room)
    while breadth(shown) > room:
        shown = style.short(shown, len(shown) - 1)
    return shown


def _plain(character: str) -> str:
    return " " if unicodedata.category(character).startswith("C") else character


def short_kernel(name: str) -> str:
    """A kernel's name without the parts that every kernel bears."""
    return PREFIXES.sub("", GENERATED.sub("", name)).removesuffix(".default")


def operator(target: str) -> str:
    """`add` for aten.add.Tensor, `getitem` for <built-in function getitem>."""
    namespaced = target.removeprefix("<built-in function ").removesuffix(">").split(".")
    return namespaced[min(1, len(namespaced) - 1)]


def operators(group: Group) -> str:
    """What a group computes, by operator; views only where there is nothing else. A copy is made for its last one."""
    if group.kind == "layout":
        return f"copy for {operator(group.targets[-1])}"
    names = [operator(target) for target in group.targets]
    return ", ".join(dict.fromkeys([name for name in names if not VIEWS.fullmatch(name)] or names)) or group.group_id


def group_lines(group: Group, framed: bool, inlined: Sequence[str]) -> tuple[str, ...]:
    """Its kernel (its operators in a frame, which bears that name), how much it does, what was inlined into it."""
    name = operators(group) if framed or group.kernel is None else short_kernel(group.kernel)
    moved = (group.bytes_read or 0) + (group.bytes_written or 0)
    work = "no work" if group.kind == "nop" else style.plural(len(group.ops), "op")
    facts = f"{work} · {style.size(moved)}" if moved else work
    repeated = (label(f"inlined: {', '.join(inlined)}"),) if inlined else ()
    return label(name), facts, *repeated


def op_lines(op: Op) -> tuple[str, str]:
    """An FX node's name, and what it makes."""
    return label(op.node), label("×".join(op.shape) if op.shape else operator(op.target))


def is_view(op: Op) -> bool:
    """Whether it computes nothing."""
    return VIEWS.fullmatch(operator(op.target)) is not None


def group_title(group: Group) -> str:
    """What is told of a group when the pointer rests on it."""
    facts = [
        group.kernel or group.group_id,
        f"{style.KIND_NAMES[group.kind]}, {group.backend or 'no kernel'}",
        f"{style.plural(len(group.members), 'scheduler node')}, {style.plural(len(group.ops), 'op')}",
        f"reads {style.size(group.bytes_read)}, writes {style.size(group.bytes_written)}",
        style.short(", ".join(group.ops), 80),
    ]
    return "\n".join([*facts, "computed again in the backward pass"] if group.recomputed else facts)


def op_title(op: Op) -> str:
    """What is told of an FX node when the pointer rests on it."""
    made = " ".join(filter(None, (op.dtype, "×".join(op.shape or ()))))
    place = style.source_line(op.file, op.line) if op.file else None
    return "\n".join(filter(None, (op.node, op.target, made, place, op.module_path)))
