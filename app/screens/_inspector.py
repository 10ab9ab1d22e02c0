"""The inspector beside the fusion graph: one group, or an FX node in it, from five sides; or a module."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.components.code_view import code_view
from fusionscope.app.components.name import name
from fusionscope.app.figures.boxes import operator
from fusionscope.app.figures.dag_items import composition
from fusionscope.app.screens._why import computed, details, headline, meetings
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion, fusion_facts, fusion_ops
from fusionscope.storage.queries.fusion import Group, Lowering
from fusionscope.storage.queries.fusion_ops import Op

SHOWN = 40  # decisions in the inspector; the ledger below the canvas has them all
HEIGHT, MOST_ROWS = 480, 12  # of a long tab in pixels, and of a table in it; longer ones scroll
LANGUAGES = {"cpp": "cpp", "triton": "python", "template": "python", "user": "python"}
PARTNERS = 200  # groups offered for a pair; of a larger graph those that the group met


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the inspector is about: a group of a graph, and perhaps one FX node in it."""

    run_id: str
    graph_id: str
    group: Group
    node: str | None


def inspector(chosen: Chosen, groups: Sequence[Group]) -> None:
    """Node, Why, Code, Source and Buffers of what is chosen."""
    group = chosen.group
    name(chosen.node or group.kernel or group.group_id, key="chosen")
    nodes, ops = style.plural(len(group.members), "scheduler node"), style.plural(len(group.ops), "op")
    inside = f"in {style.short(group.kernel or group.group_id, 44)} · " if chosen.node else ""
    style.note(f"{inside}{style.KIND_NAMES[group.kind]} · {nodes} · {ops}", "group")
    sides: dict[str, Callable[[], None]] = {
        "Node": lambda: _node(chosen),
        "Why": lambda: _why(chosen, groups),
        "Code": lambda: _code(chosen),
        "Source": lambda: _source(chosen),
        "Buffers": lambda: _buffers(chosen),
    }
    # Only the open tab is made: the browser would draw what is in the others too, before the graph.
    for tab, draw in zip(st.tabs(list(sides), key="inspector", bind="query-params"), sides.values(), strict=True):
        if tab.open:
            with tab, st.container(height=HEIGHT, border=False):
                draw()


def module_inspector(run_id: str, title: str, groups: Sequence[Group]) -> None:
    """The kernels of one module."""
    name(title, key="chosen")
    shares = ", ".join(f"{style.KIND_NAMES[kind]} {style.percent(share)}" for kind, share in composition(groups))
    style.note(f"{style.plural(len(groups), 'group')}: {shares}", "module")
    rows = [
        {
            "group": g.group_id,
            "kernel": g.kernel,
            "ops": len(g.ops),
            "moves": (g.bytes_read or 0) + (g.bytes_written or 0),
        }
        for g in groups
    ]
    table(rows, {"moves": style.size}, key="module", height=HEIGHT if len(rows) > MOST_ROWS else None)


def _node(chosen: Chosen) -> None:
    op = next((op for op in _ops(chosen) if op.node == chosen.node), None)
    if facts := _op_facts(op) if op else _costs(chosen):
        st.text("\n".join(facts))
    members = data.ask(fusion.members, chosen.run_id, chosen.graph_id, chosen.group.group_id)
    rows = [
        {
            "node": m.ir_node,
            "kind": m.kind,
            "reads": m.bytes_read,
            "writes": m.bytes_written,
            "ops": computed(m.origins),
        }
        for m in members
        if op is None or m.ir_node in op.ir_nodes
    ]
    height = HEIGHT - 160 if len(rows) > MOST_ROWS else None
    table(rows, {"reads": style.size, "writes": style.size}, key="members", height=height)
    style.note("Bytes as Inductor counts them for each scheduler node.", "members")
    if chosen.group.kernel_id:
        style.door("Open the kernel", "kernels", chosen.run_id, kernel=chosen.group.kernel_id)


def _ops(chosen: Chosen) -> list[Op]:
    """The FX nodes of the group; not looked up while no node is chosen."""
    if chosen.node is None:
        return []
    found = data.ask(fusion_ops.ops, chosen.run_id, chosen.graph_id)
    return [op for op in found if op.group_id == chosen.group.group_id]


def _op_facts(op: Op) -> list[str]:
    held = style.size(op.bytes) if op.bytes is not None else None
    made = " ".join(filter(None, (op.dtype, "×".join(op.shape or ()), held)))
    stride = f"strides {', '.join(op.stride)}" if op.stride else None
    again = "computed again in the backward pass" if op.recomputed else None
    return list(filter(None, (op.target, made, stride, op.module_path, again)))


def _costs(chosen: Chosen) -> list[str]:
    """Time, registers and share of the peak, as far as they are recorded."""
    costs = data.ask(fusion_facts.costs, chosen.run_id, chosen.graph_id)
    cost = next((cost for cost in costs if cost.group_id == chosen.group.group_id), None)
    if cost is None:
        return []
    share = style.percent(cost.peak_share)
    held = f"{style.size(cost.peak_bytes)} of it is alive at the peak ({share} of what the call holds)"
    lines = [
        f"one call of its kernel takes {style.duration(cost.time_us)}" if cost.time_us is not None else None,
        held if cost.peak_bytes else "nothing of it is alive at the peak" if cost.peak_bytes == 0 else None,
        f"{style.number(cost.registers)} registers a thread" if cost.registers is not None else None,
        f"{style.size(cost.spill_bytes)} spilled a thread" if cost.spill_bytes else None,
        f"{style.percent(cost.occupancy)} theoretical occupancy" if cost.occupancy is not None else None,
    ]
    return [line for line in lines if line]


def _why(chosen: Chosen, groups: Sequence[Group]) -> None:
    group_id = chosen.group.group_id
    lowerings = [low for low in data.ask(fusion.lowerings, chosen.run_id, chosen.graph_id) if group_id in low.groups]
    decisions = data.ask(fusion.decisions, chosen.run_id, chosen.graph_id)
    entries = list(meetings(d for d in decisions if group_id in (*d.a_groups, *d.b_groups)))
    partners = {side for d, _ in entries for side in (*d.a_groups, *d.b_groups)} - {group_id}
    _pair_with(chosen, [g for g in groups if len(groups) <= PARTNERS or g.group_id in partners])
    if not lowerings and not entries:
        style.note("No pair with this group was tested, and no producer in it was used more than once.", "no-decision")
    for i, lowering in enumerate(lowerings):
        _entry(f"lowering-{i}", f"{lowering.node}: {outcome(lowering)}", lowering_reason(lowering))
    for i, (decision, rounds) in enumerate(entries[:SHOWN]):
        _entry(f"decision-{i}", headline(decision, group_id), *details(decision, group_id, rounds))
    if len(entries) > SHOWN:
        style.note(f"{len(entries) - SHOWN} more in the ledger below.", "more")


def _pair_with(chosen: Chosen, groups: Sequence[Group]) -> None:
    """Pick the other side of a pair by name."""
    names = {g.group_id: f"{g.group_id} ({computed(g.ops)})" for g in groups if g.group_id != chosen.group.group_id}
    other = st.selectbox(
        "Why not with",
        list(names),
        None,
        format_func=lambda name: style.short(names[name], 60),
        placeholder="another group: shift + click it, or choose it here",
        key=f"pair-{chosen.graph_id}-{chosen.group.group_id}",
    )
    if other is not None:
        st.query_params["node"], st.query_params["with"] = chosen.group.group_id, other
        st.rerun()


def _entry(key: str, title: str, *lines: str) -> None:
    with st.container(key=f"entry-{key}", gap=None):
        st.text(title)
        if lines:
            st.text("\n".join(lines))


def outcome(lowering: Lowering) -> str:
    """What lowering decided, in a few words."""
    users = style.plural(lowering.users, "user")
    return f"realized, one buffer for {users}" if lowering.realized else f"inlined, computed again in each of {users}"


def lowering_reason(lowering: Lowering) -> str:
    """Why, and what it cost or spared."""
    stored = (
        None
        if lowering.bytes is None
        else f"{style.size(lowering.bytes)} {'stored' if lowering.realized else 'not stored'}"
    )
    reason = lowering.reason or lowering.threshold
    return "; ".join(filter(None, (reason and reason.removeprefix("inlined: ").removeprefix("realized: "), stored)))


def _code(chosen: Chosen) -> None:
    group = chosen.group
    kernel = data.ask(fusion.kernel_source, chosen.run_id, group.kernel_id) if group.kernel_id else None
    if kernel is None:
        style.note("No kernel runs for this group.", "no-kernel")
    elif kernel.source is None:
        style.note(f"{kernel.name} comes from a library: there is no generated source.", "library")
    elif chosen.node is None:
        st.code(kernel.source, language=LANGUAGES.get(kernel.backend), height=440)
    else:
        target = next((op.target for op in _ops(chosen) if op.node == chosen.node), chosen.node)
        called = operator(target)
        lit = mentions(kernel.source, called)
        code_view(kernel.source, lit, height=440, key="code")
        style.note(
            f"Lit: lines that call {called}. Inductor does not say which line computes which FX node."
            if lit
            else f"No line calls {called} by name, and Inductor does not say which line computes which FX node.",
            "lit",
        )


def mentions(source: str, function: str) -> list[int]:
    """Lines, from 1, of a kernel in which a function of that name is called; comments do not count."""
    called = re.compile(rf"(?<!\w){re.escape(function.strip('_'))}(?:_u20|f)?\(")
    lines = enumerate(source.split("\n"), start=1)
    return [i for i, line in lines if not line.lstrip().startswith(("#", "//")) and called.search(line)]


def _source(chosen: Chosen) -> None:
    """Lines of the model; of one FX node only its own."""
    found = data.ask(fusion.source_lines, chosen.run_id, chosen.graph_id, chosen.group.group_id)
    lines = [line for line in found if chosen.node is None or chosen.node in line.nodes]
    if not lines:
        style.not_recorded("no FX node of this group carries a line of the model", "source")
    for i, line in enumerate(lines):
        with st.container(key=f"entry-source-{i}", gap=None):
            again = " · computed again in the backward pass" if line.recomputed else ""
            place = style.source_line(line.file, line.line) if line.file else "no source line"
            st.text(f"{place}{f' · {line.module_path}' if line.module_path else ''}{again}")
            if line.source_text:
                st.code(line.source_text.strip(), language="python", wrap_lines=True)
            st.text(", ".join(line.nodes))


def _buffers(chosen: Chosen) -> None:
    rows = [
        {
            "buffer": b.buffer,
            "role": b.role,
            "bytes": b.bytes,
            "category": b.category,
            "shape": "×".join(b.shape) if b.shape is not None else None,
            "dtype": b.dtype,
            "other groups": ", ".join(b.other),
            "reuses": b.reuses,
        }
        for b in data.ask(fusion.group_buffers, chosen.run_id, chosen.graph_id, chosen.group.group_id)
    ]
    if not rows:
        style.note("This group reads and writes nothing that another scheduler node touches.", "no-buffers")
        return
    table(rows, {"bytes": style.size}, key="group-buffers")
    style.note("inside: handed on within the group. Inputs and weights are not listed.", "group-buffers")
    steps = data.ask(fusion_ops.allocations, chosen.run_id, chosen.graph_id)
    step = next((steps[str(row["buffer"])] for row in rows if row["buffer"] in steps), None)
    if step is not None:
        style.door("In memory", "memory", chosen.run_id, graph=chosen.graph_id, step=str(step))
