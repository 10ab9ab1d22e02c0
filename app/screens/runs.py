"""Runs: which run do I want, and how are my models doing?"""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens import _run_rows as lines
from fusionscope.app.screens._run_acts import acts, undo_delete, views
from fusionscope.app.screens._trend import show_trend
from fusionscope.app.table import ticked_table
from fusionscope.storage.queries.runs import RunSummary

SHOWN = 300  # lines: a table of ten thousand is neither read nor drawn in a second
KEYS = ("q", "project", "name", "tag", "device", "torch", "status", "archived")


def choose(label: str, values: Iterable[str | None], key: str, width: int) -> tuple[str, ...]:
    """A filter by one property, kept in the address; nothing where there is no choice."""
    present = sorted({value for value in values if value})
    if len(present) < 2 and not st.session_state.get(key):
        return ()
    return tuple(st.multiselect(label, present, key=key, bind="query-params", width=width, placeholder="any"))


def filters(runs: list[RunSummary]) -> lines.Filters:
    """The row of filters above the table."""
    with st.container(key="filters", horizontal=True, vertical_alignment="bottom", gap="small"):
        words = st.text_input("Search", key="q", placeholder="name, id, commit …", bind="query-params", width=170)
        chosen = lines.Filters(
            words,
            choose("Project", (run.project for run in runs), "project", 140),
            choose("Name", (run.name for run in runs), "name", 160),
            choose("Tag", (tag for run in runs for tag in run.tags), "tag", 120),
            choose("Device", (run.device for run in runs), "device", 160),
            choose("Torch", (run.torch_version for run in runs), "torch", 130),
            choose("Status", (run.status for run in runs), "status", 120),
            any(run.archived for run in runs) and st.toggle("Archived", key="archived", bind="query-params"),
        )
        views({key: st.session_state.get(key) for key in KEYS})
    return chosen


def answer(runs: list[RunSummary]) -> str:
    """The sentence."""
    measured = [run for run in runs if run.speed_up is not None]
    clear = [run for run in measured if not run.within_noise]
    faster = sum(run.speed_up is not None and run.speed_up > 1 for run in clear)
    return (
        f"{style.plural(len(runs), 'run')}, {len(measured)} measured against eager: {faster} faster when compiled, "
        f"{len(clear) - faster} slower, {len(measured) - len(clear)} within the noise."
    )


def disk_use(shown: list[RunSummary], every: list[RunSummary]) -> str:
    """The library's file, and the share of the runs shown by the rows that they recorded."""
    size = data.library().path.stat().st_size
    facts, total = (sum(run.facts or 0 for run in runs) for runs in (shown, every))
    share = f", {style.size(size * facts / total)} of it these runs by their rows" if total and facts < total else ""
    return f"The library takes {style.size(size)} on disk{share}."


runs = data.run_choice()
style.heading("Runs", str(data.library().path.parent))
if not runs:
    style.empty_library()
    undo_delete()
    st.stop()

summary = st.empty()
asked = filters(runs)
passing = [run for run in runs if asked.let_through(run)]
with summary:
    style.sentence(answer(passing))
undo_delete()
if not passing:
    style.notice("No run passes these filters.")
    st.stop()

fold = st.segmented_control(
    "One line for",
    lines.FOLDS,
    default="ranks",
    required=True,
    key="fold",
    bind="query-params",
    label_visibility="collapsed",
    format_func={"ranks": "Ranks folded", "name": "Names folded", "nothing": "Every run"}.__getitem__,
)
every_line = lines.folded(passing, fold or "ranks")
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
        "worst finding": {"width": 140},
        "run": {"width": 145},
        "torch": {"width": 85},
        "verdict": {"width": 88},
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
    acts([shown[tick].run for tick in ticks])
if len(every_line) > len(shown):
    style.note(f"The newest {SHOWN} of {style.number(len(every_line))} lines; filters find the others.", "more")
style.note(
    "Click a row to open the run; tick two to compare them. Compiled is the median latency of one call, the trend that "
    f"of the last {lines.TREND} runs of the name on the device; peak Δ is what compiling adds to the measured peak; "
    "kernels are those of one call as measured, or the calls in the emitted code. A speed-up beyond the noise of its "
    f"samples is coloured. Breaks and recompiles count the program's own calls. {disk_use(passing, runs)}",
    "runs",
)
show_trend(passing)
