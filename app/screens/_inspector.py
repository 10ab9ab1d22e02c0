"""The inspector beside the kernel graph: one fusion group from five sides."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion
from fusionscope.storage.queries.fusion import Decision, Group, Lowering, SourceLine

SHOWN = 40  # decisions in the inspector; the ledger below the canvas has them all
LANGUAGES = {"cpp": "cpp", "triton": "python", "template": "python", "user": "python"}


def inspector(run_id: str, graph_id: str, group: Group) -> None:
    """Node, Why, Code, Source and Buffers of a group."""
    st.code(group.kernel or group.group_id, language=None, wrap_lines=True)
    style.note(
        f"{style.KIND_NAMES[group.kind]} · {style.plural(len(group.members), 'scheduler node')} · {style.plural(len(group.ops), 'op')}",
        "group",
    )
    node, why, code, source, buffers = st.tabs(["Node", "Why", "Code", "Source", "Buffers"], key="inspector")
    with node:
        _node(run_id, graph_id, group)
    with why:
        _why(run_id, graph_id, group)
    with code:
        _code(run_id, group)
    with source:
        _source(data.ask(fusion.source_lines, run_id, graph_id, group.group_id))
    with buffers:
        _buffers(run_id, graph_id, group)


def _node(run_id: str, graph_id: str, group: Group) -> None:
    members = data.ask(fusion.members, run_id, graph_id, group.group_id)
    rows = [
        {
            "node": m.ir_node,
            "kind": m.kind,
            "reads": m.bytes_read,
            "writes": m.bytes_written,
            "ops": computed(m.origins),
        }
        for m in members
    ]
    table(rows, {"reads": style.size, "writes": style.size}, key="members")
    style.note("Bytes as Inductor counts them for each scheduler node.", "members")
    if group.kernel_id:
        style.door("Open the kernel", "kernels", run_id, kernel=group.kernel_id)


def _why(run_id: str, graph_id: str, group: Group) -> None:
    lowerings = [low for low in data.ask(fusion.lowerings, run_id, graph_id) if group.group_id in low.groups]
    decisions = [
        d
        for d in data.ask(fusion.decisions, run_id, graph_id)
        if group.group_id in d.a_groups or group.group_id in d.b_groups
    ]
    if not lowerings and not decisions:
        style.note("No pair with this group was tested, and no producer in it had several users.", "no-decision")
    for i, lowering in enumerate(lowerings):
        _entry(f"lowering-{i}", f"{lowering.node}: {outcome(lowering)}", lowering_reason(lowering))
    for i, decision in enumerate(sorted(decisions, key=_telling)[:SHOWN]):
        _entry(f"decision-{i}", _headline(decision, group.group_id), *_reasons(decision))
    if len(decisions) > SHOWN:
        style.note(f"{len(decisions) - SHOWN} more in the ledger below.", "more")


def _entry(key: str, title: str, *lines: str) -> None:
    with st.container(key=f"entry-{key}", gap=None):
        st.text(title)
        if lines:
            st.text("\n".join(lines))


def _telling(decision: Decision) -> tuple[int, int]:
    """What was fused in the order taken, then refusals by shared bytes."""
    if decision.verdict == "fused":
        return 0, decision.order_taken or 0
    return 1 + (decision.verdict != "refused"), -(decision.shared_bytes or 0)


def _headline(decision: Decision, group_id: str) -> str:
    own, other = (decision.a, decision.b) if group_id in decision.a_groups else (decision.b, decision.a)
    inside = group_id in decision.a_groups and group_id in decision.b_groups
    pair = f"{own} + {other}" if inside else f"{own} with {other}"
    shared = f" · {style.size(decision.shared_bytes)} shared" if decision.shared_bytes is not None else ""
    return f"{decision.verdict}: {pair}{shared}"


def _reasons(decision: Decision) -> list[str]:
    words = {"fused": None, "legal": "could have been fused; another fusion was taken first"}
    reason = decision.reason or words.get(decision.verdict, "torch gave no reason")
    said = [f"{reason} ({decision.refused_by})" if reason and decision.refused_by else reason or ""]
    where = f"round {decision.round}, {decision.direction}"
    ops = f"{computed(decision.a_ops)} | {computed(decision.b_ops)}"
    return [*filter(None, said), ops, where, *filter(None, [scores(decision)])]


def computed(ops: tuple[str, ...], shown: int = 3) -> str:
    """The last FX nodes of a side, which are what it hands on; how many went before."""
    return (f"{len(ops) - shown} more, " if len(ops) > shown else "") + ", ".join(ops[-shown:])


def scores(decision: Decision) -> str:
    """The parts of the score, in the order in which Inductor compares them; empty where the pair was not scored."""
    parts = {
        "template": decision.score_template,
        "type": decision.score_type,
        "memory": decision.score_memory,
        "overlap": decision.score_overlap,
        "proximity": decision.score_proximity,
    }
    known = {name: value for name, value in parts.items() if value is not None}
    rank = f"rank {decision.rank}: " if decision.rank is not None and known else ""
    return rank + ", ".join(f"{name} {style.number(value)}" for name, value in known.items())


def outcome(lowering: Lowering) -> str:
    """What lowering decided, in a few words."""
    if lowering.realized:
        return f"realized: one buffer for {style.plural(lowering.users, 'use')}"
    return f"inlined: computed again for each of {style.plural(lowering.users, 'use')}"


def lowering_reason(lowering: Lowering) -> str:
    """The limits that applied and the counts that were held against them."""
    facts = [
        lowering.reason,
        None if lowering.reads is None else f"reads {style.plural(lowering.reads, 'buffer')}",
        None if lowering.opcount is None else style.plural(lowering.opcount, "operation"),
        lowering.threshold and f"limits: {lowering.threshold}",
        None
        if lowering.bytes is None
        else f"{style.size(lowering.bytes)} {'made' if lowering.realized else 'not stored'}",
    ]
    return "; ".join(filter(None, facts))


def _code(run_id: str, group: Group) -> None:
    kernel = data.ask(fusion.kernel_source, run_id, group.kernel_id) if group.kernel_id else None
    if kernel is None:
        style.note("No kernel runs for this group.", "no-kernel")
    elif kernel.source is None:
        style.note(f"{kernel.name} comes from a library: there is no generated source.", "library")
    else:
        st.code(kernel.source, language=LANGUAGES.get(kernel.backend), height=440)


def _source(lines: list[SourceLine]) -> None:
    if not lines:
        style.not_recorded("no FX node of this group carries a line of the model", "source")
    for i, line in enumerate(lines):
        with st.container(key=f"entry-source-{i}", gap=None):
            again = " · computed again in the backward pass" if line.recomputed else ""
            place = style.source_line(line.file, line.line) if line.file else "no source line"
            st.text(f"{place}{f' · {line.module_path}' if line.module_path else ''}{again}")
            if line.source_text:
                st.code(line.source_text.strip(), language="python")
            st.text(", ".join(line.nodes))


def _buffers(run_id: str, graph_id: str, group: Group) -> None:
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
        for b in data.ask(fusion.group_buffers, run_id, graph_id, group.group_id)
    ]
    if not rows:
        style.note("This group reads and writes nothing that another scheduler node touches.", "no-buffers")
        return
    table(rows, {"bytes": style.size}, key="group-buffers")
    style.note("inside: handed on within the group. Inputs and weights are not listed.", "group-buffers")
