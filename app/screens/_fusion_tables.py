"""The tables of the Fusion screen: decisions at lowering, the scheduler's ledger, and the twin of the canvas."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import style
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._inspector import computed, lowering_reason, plain_words, scores
from fusionscope.app.table import table
from fusionscope.storage.queries.fusion import Decision, Group, Lowering
from fusionscope.storage.queries.runs import RunSummary

VERDICTS = ("refused", "fused", "legal", "untested")


def lowering_table(lowerings: list[Lowering], run: RunSummary) -> None:
    """Producers with several users: inlined or realized."""
    style.section("Decided at lowering, before the scheduler", "lowering")
    if not lowerings:
        absence(
            run, ("realize",), "No producer in this graph was considered for sharing among several users.", "lowering"
        )
        return
    rows = [
        {
            "producer": low.node,
            "decision": "realized" if low.realized else "inlined",
            "users": low.users,
            "buffer": low.bytes,
            "source": style.source_line(low.file, low.line),
            "line": (low.source_text or "").strip(),
            "reason": lowering_reason(low),
            "groups": ", ".join(low.groups),
            "reads": low.reads,
            "operations": low.opcount,
        }
        for low in lowerings
    ]
    table(
        rows,
        {"reads": style.number, "operations": style.number, "buffer": style.size},
        key="lowering",
        config={"line": {"width": 240}, "reason": {"width": 420}},
    )
    style.note(
        "A producer with several users is given a buffer (realized), or repeated in each of them (inlined): "
        "StorageBox.should_realize_on_reuse decides. buffer: what was stored, or was not.",
        "lowering",
    )


@st.fragment
def ledger(decisions: list[Decision], run: RunSummary) -> None:
    """Every tested pair, refusals by shared bytes first, with filters."""
    style.section("Every pair that the scheduler tested", "ledger")
    if not decisions:
        absence(run, ("fusion_pairs", "fusion_reasons"), "The scheduler tested no pair in this graph.", "ledger")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        present = [verdict for verdict in VERDICTS if any(d.verdict == verdict for d in decisions)]
        verdicts = st.pills("Verdict", present, selection_mode="multi", key="verdict", bind="query-params")
        directions = sorted({d.direction for d in decisions})
        kinds = st.pills("Direction of the pair", directions, selection_mode="multi", key="pair", bind="query-params")
        words = st.text_input("Text", key="ledger-text", placeholder="operator, node, reason", width=260)
    shown = [d for d in decisions if _fits(d, verdicts, kinds, words)]
    if not shown:
        style.note("No pair passes these filters.", "filtered")
        return
    table([_row(d) for d in shown], FORMATS, key="ledger", config=WIDTHS)
    style.note(
        f"{style.plural(len(shown), 'pair')} of {style.number(len(decisions))}; refusals first, by the bytes that both "
        "sides touch. legal: could have been fused, but another fusion came first. untested: the scheduler passed it "
        "by. Inductor compares the parts of a score from left to right.",
        "ledger",
    )


FORMATS = {"shared": style.size} | dict.fromkeys(("taken", "round", "ms apart", "ms fused"), style.number)
WIDTHS = {
    name: {"width": width}
    for name, width in (
        ("a", 84),
        ("b", 84),
        ("a computes", 190),
        ("b computes", 190),
        ("reason", 300),
        ("refused by", 230),
        ("in plain words", 420),
        ("score", 300),
    )
}


def _fits(decision: Decision, verdicts: list[str], directions: list[str], words: str | None) -> bool:
    text = " ".join(
        filter(None, (decision.a, decision.b, *decision.a_ops, *decision.b_ops, decision.reason, decision.refused_by))
    )
    return (
        (not verdicts or decision.verdict in verdicts)
        and (not directions or decision.direction in directions)
        and (words or "").strip().lower() in text.lower()
    )


def _row(decision: Decision) -> dict[str, object]:
    row: dict[str, object] = {
        "verdict": decision.verdict,
        "shared": decision.shared_bytes,
        "a": decision.a,
        "a computes": computed(decision.a_ops),
        "b": decision.b,
        "b computes": computed(decision.b_ops),
        "reason": decision.reason or ("torch gave no reason" if decision.verdict == "refused" else None),
        "refused by": decision.refused_by,
        "in plain words": plain_words(decision),
        "direction": decision.direction,
        "round": decision.round,
        "score": scores(decision) or None,
        "taken": decision.order_taken,
        "became": decision.result,
    }
    if decision.ms_before is not None or decision.ms_after is not None:
        row |= {"ms apart": decision.ms_before, "ms fused": decision.ms_after}
    return row


def group_table(groups: list[Group], key: str) -> None:
    """The canvas as a table; a click selects the group. `key` names the graph and its run."""
    style.section("Groups", "groups")
    rows = [
        {
            "group": g.group_id,
            "kernel": g.kernel,
            "kind": style.KIND_NAMES[g.kind],
            "nodes": len(g.members),
            "ops": len(g.ops),
            "reads": g.bytes_read,
            "writes": g.bytes_written,
            "call": g.call,
            "computes": ", ".join(g.ops),
            "again": "computed again" if g.recomputed else None,
        }
        for g in groups
    ]
    formats = {"reads": style.size, "writes": style.size, "call": style.number}
    chosen = table(rows, formats, key=f"groups-{key}", choose=True, config={"computes": {"width": 420}})
    style.note("The picture above as a table, in schedule order. Click a row to see it there.", "groups")
    if chosen is not None and st.session_state.get(f"shown-{key}") != chosen:
        st.session_state[f"shown-{key}"] = chosen
        st.query_params["node"] = groups[chosen].group_id
        st.rerun()
