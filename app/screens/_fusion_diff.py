"""The Fusion screen against another run: which groups changed, and what that did to time, bytes and peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.boxes import operator
from fusionscope.app.table import table
from fusionscope.storage.queries import fusion_diff, graphs
from fusionscope.storage.queries.fusion_diff import FIGURES, STATUSES, Match
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.runs import RunSummary


def compared(run: RunSummary, graph: DecidedGraph, against: str | None) -> list[Match]:
    """What became of the groups of the other run's graph of the same frame and direction; empty without one."""
    other = _same_graph(graph, data.ask(graphs.decided_graphs, against)) if against else None
    if against is None or other is None:
        return []
    return data.ask(fusion_diff.matches, (against, other.graph_id), (run.run_id, graph.graph_id))


def _same_graph(graph: DecidedGraph, known: Sequence[DecidedGraph]) -> DecidedGraph | None:
    """The graph of the same function and direction, of the same id where there are several."""
    forward = {"forward", "inference"}
    alike = [g for g in known if g.direction == graph.direction or {g.direction, graph.direction} <= forward]
    alike.sort(key=lambda g: (g.function != graph.function, g.graph_id != graph.graph_id))
    return alike[0] if alike else None


def recorded(matches: Sequence[Match]) -> list[str]:
    """The figures that both runs have."""
    return [
        figure
        for figure in FIGURES
        if any(getattr(m, f"{figure}_before") is not None for m in matches)
        and any(getattr(m, f"{figure}_after") is not None for m in matches)
    ]


def delta(match: Match, figure: str) -> float | None:
    """By how much a figure changed; what is new counts in full, and so does what is gone."""
    before, after = getattr(match, f"{figure}_before"), getattr(match, f"{figure}_after")
    if match.status in ("new", "gone"):
        return after if match.status == "new" else None if before is None else -before
    return None if before is None or after is None else after - before


def relative(match: Match, figure: str) -> float | None:
    """The change as a share of what it was; None for what is new or gone."""
    before, after = getattr(match, f"{figure}_before"), getattr(match, f"{figure}_after")
    return after / before - 1 if before and after is not None else None


def diff_table(matches: Sequence[Match], against: str) -> None:
    """Groups that are not the same as in the other run, and the sums over all of them."""
    if not matches:
        style.note(f"Run {against} has no graph of this direction to compare with.", "no-diff")
        return
    counts, known = Counter(match.status for match in matches), recorded(matches)
    st.text(", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) + ": " + effect(matches))
    changed = [match for match in matches if match.status != "same"]
    if changed:
        table([_row(match, known) for match in changed], FORMATS, key="diff", config={"computes": {"width": 260}})
    style.note(
        f"Against run {against}. Groups are matched by what they compute: operator, module and source text, counted in "
        "order, not by the name of a kernel. Of a node that several groups compute, the first counts. Time and bytes: "
        "of one call of each kernel that runs the groups, each buffer once; peak: of it alive at the peak of the plan.",
        "diff",
    )


FORMATS = {
    "time": lambda change: style.signed(style.duration(change), change),
    "bytes": style.size_change,
    "peak": style.size_change,
}


def _row(match: Match, known: Sequence[str]) -> dict[str, object]:
    return {
        "became": match.status,
        "before": ", ".join(match.before) or None,
        "after": ", ".join(match.after) or None,
        "computes": ", ".join(map(operator, match.ops)),
        "source": style.source_line(match.file, match.line),
        **{figure: delta(match, figure) for figure in known},
    }


def effect(matches: Sequence[Match]) -> str:
    """The sums of the changes, of the figures that both runs have."""
    told, known = [], recorded(matches)
    for figure in FIGURES:
        deltas = [change for match in matches if (change := delta(match, figure)) is not None]
        told.append(f"{figure} {FORMATS[figure](sum(deltas))}" if figure in known else f"{figure} not recorded in both")
    return ", ".join(told)
