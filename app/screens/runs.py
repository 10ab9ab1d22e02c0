"""Runs: which run do I want, and how are my models doing?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens import _run_rows as lines
from fusionscope.app.screens._run_acts import acts, undo_delete, views
from fusionscope.app.screens._run_filters import show_filters
from fusionscope.app.screens._trend import show_trend
from fusionscope.app.table import ticked_table
from fusionscope.storage.queries.runs import RunSummary

SHOWN = 200  # lines: a table of ten thousand is neither read nor drawn in a second
FOLDING = (
    "job: the ranks of one job, or what was recorded with one --group. "
    "commit: the runs of a name at one commit, with one torch, on one device; they differ in how they were compiled. "
    "name: all runs of a name, of which the newest is shown; of other groups rank 0, or else the fastest."
)


def answer(runs: list[RunSummary]) -> str:
    """The sentence."""
    measured = [run for run in runs if run.speed_up is not None]
    if not measured:
        return f"{style.plural(len(runs), 'run')}, none measured against eager."
    clear = [run for run in measured if not run.within_noise]
    faster = sum(run.speed_up is not None and run.speed_up > 1 for run in clear)
    return (
        f"{style.plural(len(runs), 'run')}, {style.number(len(measured))} measured against eager: "
        f"{style.number(faster)} faster when compiled, {style.number(len(clear) - faster)} slower, "
        f"{style.number(len(measured) - len(clear))} within the noise."
    )


def disk_use(shown: list[RunSummary], every: list[RunSummary]) -> str:
    """The library's file, and the share of the runs shown by the rows that they recorded."""
    size = data.library().path.stat().st_size
    facts, total = (sum(run.facts or 0 for run in runs) for runs in (shown, every))
    share = f", {style.size(size * facts / total)} of it these runs by their rows" if total and facts < total else ""
    return f"The library takes {style.size(size)} on disk{share}."


def fold_and_views() -> str:
    """The second row: what shares a line, and the views that are kept."""
    with st.container(key="folding", horizontal=True, vertical_alignment="center", gap="small"):
        st.text("A line for each")
        fold = st.segmented_control(
            "A line for each",
            lines.FOLDS,
            default="job",
            required=True,
            key="fold",
            bind="query-params",
            label_visibility="collapsed",
            help=FOLDING,
        )
        views()
    return fold or "job"


def show_lines(every_line: list[lines.Line], runs: list[RunSummary], fold: str) -> None:
    """The table: a click opens a run, ticks offer what can be done."""
    shown = every_line[:SHOWN]
    series = lines.trends(runs)
    rows = [lines.row(line, series) for line in shown]
    hidden = lines.unused(rows)
    clicked, ticks = ticked_table(
        [{title: value for title, value in row.items() if title not in hidden} for row in rows],
        lines.FORMATS,
        key=f"runs-{st.session_state.get('round', 0)}",
        config={
            "trend": st.column_config.LineChartColumn(width=64),
            **{title: {"width": width} for title, width in lines.WIDTHS.items()},
        },
        colours={
            title: [colour(line.run) for line in shown]
            for title, colour in {"speed-up": lines.speed_colour, "peak Δ": lines.peak_colour}.items()
            if title not in hidden
        },
    )
    if clicked is not None:
        st.switch_page("screens/overview.py", query_params={"run": shown[clicked].run.run_id})
    if ticks:
        acts([shown[tick] for tick in ticks], fold)
    if len(every_line) > len(shown):
        style.note(f"The newest {SHOWN} of {style.number(len(every_line))} lines; filters find the others.", "more")


runs = data.run_choice()
style.heading("Runs", str(data.library().path.parent))
if not runs:
    style.empty_library()
    undo_delete()
    st.stop()

summary = st.empty()
asked = show_filters(runs)
fold = fold_and_views()
passing = [run for run in runs if asked.let_through(run)]
with summary:
    style.sentence(answer(passing) if passing else "No run passes these filters.")
undo_delete()
if not passing:
    st.stop()
show_lines(lines.folded(passing, fold), runs, fold)
style.note(
    "Click a row to open the run; tick two to compare them. Compiled is the median latency of one call, the trend that "
    f"of the last {lines.TREND} runs of the name on the device; peak Δ is what compiling adds to the measured peak; "
    "kernels are those of one call as measured, or the calls in the emitted code. A speed-up beyond the noise of its "
    f"samples is coloured. Breaks and recompiles count the program's own calls. {disk_use(passing, runs)}",
    "runs",
)
show_trend(passing, lines.OWN if fold == lines.OWN else "job")
