"""Contests that Inductor held by timing: libraries against templates for each matrix product or convolution."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.candidates import Candidate, candidates_figure
from fusionscope.app.table import table
from fusionscope.storage.queries import autotune
from fusionscope.storage.queries.autotune import GemmContest
from fusionscope.storage.queries.runs import RunSummary

FORMATS = dict.fromkeys(("winner", "fastest library", "fastest template"), style.duration) | {"ahead": style.percent}


def contests(run: RunSummary) -> None:
    """A line per contest; the chosen one's candidates below. Nothing where Inductor asked for none."""
    asked = data.ask(autotune.gemm_contests, run.run_id)
    held = [contest for contest in asked if contest.candidates > 1]
    if not asked:
        return
    style.section("Library or template: what was weighed for each product", "contests")
    if alone := len(asked) - len(held):
        style.note(f"{style.plural(alone, 'product')} had a single candidate, the library or a template.", "alone")
    if held:
        _held(run, held)


def _held(run: RunSummary, held: list[GemmContest]) -> None:
    rows = [_line(contest) for contest in held]
    known = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    shown = [{column: row[column] for column in known} for row in rows]
    chosen = table(shown, FORMATS, key=f"contests-{run.run_id}", choose=True)
    undecided = sum(not contest.decided for contest in held)
    if undecided < len(held):
        style.note(
            "ahead: how much longer the next fastest took than the one that was chosen; negative where a slower one "
            "was chosen for what can be fused into it.",
            "contests",
        )
    if undecided:
        style.note(f"{style.plural(undecided, 'contest')} undecided: {data.why_missing(run, 'templates')}.", "open")
    style.note("Click a row for its candidates.", "contests-click")
    if chosen is not None:
        _candidates(run, held[chosen])


def _line(contest: GemmContest) -> dict[str, object]:
    ahead = None if contest.margin_over_second is None else contest.margin_over_second - 1
    return {
        "operation": contest.op,
        "inputs": contest.shapes,
        "chosen": contest.choice if contest.decided else "undecided",
        "kind": contest.kind,
        "winner": contest.time_us,
        "ahead": ahead,
        "fastest library": contest.library_us,
        "fastest template": contest.template_us,
        "candidates": contest.candidates,
        "failed": contest.failed,
        "node": contest.node,
        "graph": contest.graph_id,
    }


def _candidates(run: RunSummary, contest: GemmContest) -> None:
    """The candidates of one contest: bars of those that were timed, a table of all."""
    found = data.ask(autotune.gemm_candidates, run.run_id, contest.graph_id, contest.node)
    timed = [
        Candidate(f"{c.choice} {c.config or ''}".strip(), c.time_us, c.chosen, c.kind)
        for c in found
        if c.time_us is not None
    ]
    if timed:
        style.note(margin(timed), "contest-margin")
        st.plotly_chart(candidates_figure(timed), config=style.PLOT, key="contest-candidates")
    rows = [
        {
            "candidate": c.choice,
            "kind": c.kind,
            "time": c.time_us,
            "chosen": "undecided" if c.chosen is None else "yes" if c.chosen else "no",
            "configuration": c.config,
            "could not run": c.error,
        }
        for c in found
    ]
    table(rows, {"time": style.duration}, key="contest-table")


def margin(timed: Sequence[Candidate]) -> str:
    """How much longer the next candidate took than the fastest, and which was chosen where it is another."""
    first, *rest = sorted(timed, key=lambda c: c.time_us)
    fastest = f"{first.name} took {style.duration(first.time_us)}"
    if not rest:
        return f"{fastest}; no other was timed."
    ahead = style.percent(rest[0].time_us / first.time_us - 1)
    other = next((c.name for c in rest if c.chosen), None)
    remark = f" {other} was chosen all the same." if other and not first.chosen else ""
    return f"{fastest}; the next of {style.plural(len(timed), 'timed candidate')} takes {ahead} longer.{remark}"
