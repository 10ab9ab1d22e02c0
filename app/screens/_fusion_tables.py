"""The tables of the Fusion screen: decisions at lowering, the scheduler's ledger, and the twin of the canvas."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.dag_items import module_of
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._fusion_diff import diff_table
from fusionscope.app.screens._fusion_picture import Asked
from fusionscope.app.screens._inspector import lowering_reason
from fusionscope.app.screens._schedule import schedule_tables
from fusionscope.app.screens._why import computed, plain_words, plain_words_of, scores
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion, fusion_ops
from fusionscope.storage.queries.fusion import Decision, Group, Lowering
from fusionscope.storage.queries.fusion_diff import Match
from fusionscope.storage.queries.fusion_ops import Op
from fusionscope.storage.queries.fusion_refusals import Refusal
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary

VERDICTS = ("refused", "fused", "legal", "untested")


@st.fragment
def tabs(run: RunSummary, graph: DecidedGraph, worklist: list[Refusal], matches: list[Match], asked: Asked) -> None:
    """Every table of the screen; only the one that is open is made."""
    ids = run.run_id, graph.graph_id
    tables: dict[str, Callable[[], None]] = {
        "Not fused": lambda: refusal_table(worklist, run),
        "Every pair": lambda: ledger(data.ask(fusion.decisions, *ids), run),
        "At lowering": lambda: lowering_table(data.ask(fusion.lowerings, *ids), run),
        "Schedule": lambda: schedule_tables(run, graph.graph_id),
        "As a table": lambda: twin(run, graph, asked.level),
    }
    if asked.against is not None:
        tables["Against the other run"] = lambda: diff_table(matches, asked.against or "")
    for tab, draw in zip(st.tabs(list(tables), key="table", bind="query-params"), tables.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def refusal_table(worklist: list[Refusal], run: RunSummary) -> None:
    """What fusion missed, by what it cost: one row per reason and line of the model; a click shows the largest pair."""
    if not worklist:
        absence(run, ("fusion_pairs", "fusion_reasons"), "No pair that shares data ended in two groups.", "worklist")
        return
    words = {"refused": "refused", "untested": "never tested", "legal": "legal, not taken"}
    present = [verdict for verdict in words if any(row.verdict == verdict for row in worklist)]
    kinds = st.pills(
        "Last word", present, default=present[:1], selection_mode="multi", key="missed", format_func=words.__getitem__
    )
    shown = [row for row in worklist if row.verdict in kinds]
    if not shown:
        style.note("Nothing is chosen.", "no-worklist")
        return
    chosen = table([_refusal(row) for row in shown], FORMATS, key=f"worklist-{kinds}", choose=True, config=WIDTHS)
    style.note(
        "A pair counts once, under the last answer that it got. bytes: what each second group would have spared by a "
        "fusion with its best partner. Click a row to see its largest pair above.",
        "worklist",
    )
    _show_once("worklist-shown", (kinds, chosen), None if chosen is None else (shown[chosen].a, shown[chosen].b))


def _show_once(key: str, choice: object, pair: tuple[str, str] | None) -> None:
    """Put a pair into the address when a row has just been chosen, not each time that the page is drawn."""
    if pair is None or st.session_state.get(key) == choice:
        return
    st.session_state[key] = choice
    st.query_params["node"], st.query_params["with"] = pair
    st.rerun()


def _refusal(row: Refusal) -> dict[str, object]:
    return {
        "bytes": row.bytes,
        "pairs": row.pairs,
        "source": style.source_line(row.file, row.line),
        "line": (row.source_text or "").strip() or None,
        "in plain words": plain_words_of(row.reason_code) or "could have been fused; another fusion was taken first",
        "reason": row.reason,
        "refused by": row.refused_by,
        "direction": row.direction,
        "largest: first": f"{row.a} ({computed(row.a_ops, 2)})",
        "second": f"{row.b} ({computed(row.b_ops, 2)})",
    }


def lowering_table(lowerings: list[Lowering], run: RunSummary) -> None:
    """Producers with several users: inlined or realized."""
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


def ledger(decisions: list[Decision], run: RunSummary) -> None:
    """Every tested pair, refusals by shared bytes first, with filters."""
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


FORMATS = {"shared": style.size, "bytes": style.size} | dict.fromkeys(
    ("taken", "round", "ms apart", "ms fused"), style.number
)
WIDTHS = {
    name: {"width": width}
    for name, width in (
        ("bytes", 84),
        ("pairs", 60),
        ("line", 260),
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


def twin(run: RunSummary, graph: DecidedGraph, level: str) -> None:
    """The canvas as a table, in schedule order; a click on a row selects it there."""
    key = f"{run.run_id} {graph.graph_id} {level}"
    groups = data.ask(fusion.groups, run.run_id, graph.graph_id)
    ops = data.ask(fusion_ops.ops, run.run_id, graph.graph_id) if level == "op" else []
    names = [f"{op.group_id}/{op.node}" for op in ops] or [group.group_id for group in groups]
    rows = [_op(op) for op in ops] or [_group(group) for group in groups]
    formats = {"reads": style.size, "writes": style.size, "bytes": style.size, "call": style.number}
    chosen = table(rows, formats, key=f"twin-{key}", choose=True, config={"computes": {"width": 420}})
    style.note("The picture above as a table, in schedule order. Click a row to see it there.", "twin")
    if chosen is not None and st.session_state.get(f"shown-{key}") != chosen:
        st.session_state[f"shown-{key}"] = chosen
        st.query_params["node"] = names[chosen]
        st.query_params.pop("with", None)
        st.rerun()


def _group(group: Group) -> dict[str, object]:
    return {
        "group": group.group_id,
        "kernel": group.kernel,
        "kind": style.KIND_NAMES[group.kind],
        "nodes": len(group.members),
        "ops": len(group.ops),
        "reads": group.bytes_read,
        "writes": group.bytes_written,
        "call": group.call,
        "module": module_of([group]),
        "source": style.source_line(group.file, group.line),
        "computes": ", ".join(group.ops),
        "again": "computed again" if group.recomputed else None,
    }


def _op(op: Op) -> dict[str, object]:
    return {
        "op": op.node,
        "target": op.target,
        "group": op.group_id,
        "shape": "×".join(op.shape) if op.shape is not None else None,
        "dtype": op.dtype,
        "bytes": op.bytes,
        "module": op.module_path,
        "source": style.source_line(op.file, op.line),
        "line": (op.source_text or "").strip() or None,
        "again": "computed again" if op.recomputed else None,
    }
