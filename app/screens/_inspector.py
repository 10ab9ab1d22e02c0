"""The inspector beside the kernel graph: one fusion group from five sides."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion
from fusionscope.storage.queries.fusion import Decision, Group, Lowering, SourceLine
from fusionscope.storage.reasons import REASONS

SHOWN = 40  # decisions in the inspector; the ledger below the canvas has them all
CSS = Path(__file__).parents[1] / "static" / "inspector.css"
SILENT = {"legal": "could have been fused; another fusion was taken first", "refused": "torch gave no reason"}
HEIGHT, MOST_ROWS = 480, 12  # of a long tab in pixels, and of a table in it; longer ones scroll
LANGUAGES = {"cpp": "cpp", "triton": "python", "template": "python", "user": "python"}


def inspector(run_id: str, graph_id: str, group: Group) -> None:
    """Node, Why, Code, Source and Buffers of a group."""
    st.html(CSS)
    st.code(group.kernel or group.group_id, language=None, wrap_lines=True)
    nodes, ops = style.plural(len(group.members), "scheduler node"), style.plural(len(group.ops), "op")
    style.note(f"{style.KIND_NAMES[group.kind]} · {nodes} · {ops}", "group")
    node, why, code, source, buffers = st.tabs(["Node", "Why", "Code", "Source", "Buffers"], key="inspector")
    with node:
        _node(run_id, graph_id, group)
    with why, st.container(height=HEIGHT, border=False):
        _why(run_id, graph_id, group)
    with code:
        _code(run_id, group)
    with source, st.container(height=HEIGHT, border=False):
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
    height = HEIGHT - 100 if len(rows) > MOST_ROWS else None
    table(rows, {"reads": style.size, "writes": style.size}, key="members", height=height)
    style.note("Bytes as Inductor counts them for each scheduler node.", "members")
    if group.kernel_id:
        style.door("Open the kernel", "kernels", run_id, kernel=group.kernel_id)


def _why(run_id: str, graph_id: str, group: Group) -> None:
    lowerings = [low for low in data.ask(fusion.lowerings, run_id, graph_id) if group.group_id in low.groups]
    decisions = data.ask(fusion.decisions, run_id, graph_id)
    entries = list(_merged(d for d in decisions if group.group_id in (*d.a_groups, *d.b_groups)))
    if not lowerings and not entries:
        style.note("No pair with this group was tested, and no producer in it was used more than once.", "no-decision")
    for i, lowering in enumerate(lowerings):
        _entry(f"lowering-{i}", f"{lowering.node}: {outcome(lowering)}", lowering_reason(lowering))
    for i, (decision, rounds) in enumerate(entries[:SHOWN]):
        _entry(f"decision-{i}", _headline(decision, group.group_id), *_reasons(decision, group.group_id, rounds))
    if len(entries) > SHOWN:
        style.note(f"{len(entries) - SHOWN} more in the ledger below.", "more")


def _merged(decisions: Iterable[Decision]) -> Iterable[tuple[Decision, list[int]]]:
    """Each pair once, with the rounds in which it met the same answer."""
    for _, same in groupby(
        sorted(decisions, key=_telling), key=lambda d: (d.a, d.b, d.verdict, d.reason, d.refused_by)
    ):
        tests = list(same)
        yield tests[-1], [test.round for test in tests]


def _entry(key: str, title: str, *lines: str) -> None:
    with st.container(key=f"entry-{key}", gap=None):
        st.text(title)
        if lines:
            st.text("\n".join(lines))


def _telling(decision: Decision) -> tuple[int, int, str, str, int]:
    """What was fused in the order taken, then refusals by shared bytes; the tests of a pair stand together."""
    fused = decision.verdict == "fused"
    kind = 0 if fused else 1 + (decision.verdict != "refused")
    weight = decision.order_taken or 0 if fused else -(decision.shared_bytes or 0)
    return kind, weight, decision.a, decision.b, decision.round


def _headline(decision: Decision, group_id: str) -> str:
    (own, _), (other, _) = _sides(decision, group_id)
    inside = group_id in decision.a_groups and group_id in decision.b_groups
    shared = f" · {style.size(decision.shared_bytes)} shared" if decision.shared_bytes is not None else ""
    return f"{decision.verdict}: {own} {'+' if inside else 'with'} {other}{shared}"


def _sides(decision: Decision, group_id: str) -> list[tuple[str, tuple[str, ...]]]:
    """Name and FX nodes of both sides, the group's own first."""
    sides = [(decision.a, decision.a_ops), (decision.b, decision.b_ops)]
    return sides if group_id in decision.a_groups else sides[::-1]


def _reasons(decision: Decision, group_id: str, rounds: list[int]) -> list[str]:
    reason = decision.reason or SILENT.get(decision.verdict, "")
    by = f" ({decision.refused_by})" if decision.refused_by else ""
    ops = " | ".join(computed(ops) for _, ops in _sides(decision, group_id))
    where = f"{decision.direction}, round {', '.join(map(str, rounds))}"
    return list(filter(None, (reason + by, plain_words(decision), ops, where, scores(decision))))


def plain_words(decision: Decision) -> str | None:
    """What a refusal means, and what one could do."""
    if decision.reason_code is None:
        return None
    known = REASONS.get(decision.reason_code, REASONS["other"])
    return " ".join(filter(None, (known.sentence, known.advice)))


def computed(ops: tuple[str, ...], shown: int = 3) -> str:
    """The last FX nodes of a side, which are what it hands on."""
    return ("…, " if len(ops) > shown else "") + ", ".join(ops[-shown:])


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
                st.code(line.source_text.strip(), language="python", wrap_lines=True)
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
