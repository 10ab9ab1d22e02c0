"""Runs: which run do I want, and how are my models doing?"""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.table import table
from fusionscope.storage.queries.runs import RunSummary


def fits(run: RunSummary, words: str, statuses: list[str], projects: list[str]) -> bool:
    """Whether the filters let the run through."""
    text = " ".join(filter(None, (run.name, run.run_id, run.project, run.device, run.mode, run.torch_version)))
    in_project = not projects or run.project in projects
    return words.lower() in text.lower() and (not statuses or run.status in statuses) and in_project


def row(run: RunSummary) -> dict[str, object]:
    """The run as a line of the table; figures stay numbers so that they sort."""
    return {
        "run": run.name,
        "project": run.project,
        "device": style.short(run.device or style.MISSING, 26),
        "torch": run.torch_version,
        "mode": run.mode or "default",
        "speed-up": run.speed_up,
        "eager": run.eager_us,
        "compiled": run.compiled_us,
        "peak Δ": run.peak_delta,
        "eager kernels": run.eager_kernels,
        "kernels": run.compiled_kernels if run.compiled_kernels is not None else run.kernel_calls,
        "breaks": run.breaks,
        "recompiles": run.recompiles,
        "status": run.status,
        "age": style.age(run.created_at),
        "run id": run.run_id,
    }


def speed_colour(run: RunSummary) -> str | None:
    """A gain or a loss beyond the noise has a colour."""
    return None if run.speed_up is None or run.within_noise else style.gain_colour(run.speed_up > 1)


def peak_colour(run: RunSummary) -> str | None:
    """So has a change of the peak."""
    return style.gain_colour(run.peak_delta < 0) if run.peak_delta else None


FORMATS = {
    "speed-up": style.ratio,
    "eager": style.duration,
    "compiled": style.duration,
    "peak Δ": style.size_change,
    "eager kernels": style.number,
    "kernels": style.number,
    "breaks": style.number,
    "recompiles": style.number,
}

runs = data.run_choice()
style.heading("Runs", str(data.library().path.parent))
if not runs:
    style.empty_library()
    st.stop()

measured = [run for run in runs if run.speed_up is not None]
clear = [run for run in measured if not run.within_noise]
faster = sum(run.speed_up is not None and run.speed_up > 1 for run in clear)
style.sentence(
    f"{style.plural(len(runs), 'run')}, {len(measured)} measured against eager: {faster} faster when compiled, "
    f"{len(clear) - faster} slower, {len(measured) - len(clear)} within the noise."
)
with st.container(horizontal=True, vertical_alignment="bottom"):
    words = st.text_input("Search", key="q", placeholder="name, device, mode, id", bind="query-params", width=300)
    projects = sorted({run.project for run in runs if run.project})
    chosen_projects = st.multiselect("Project", projects, key="project", width=260) if projects else []
    statuses = sorted({run.status for run in runs})
    chosen_statuses = st.pills("Status", statuses, selection_mode="multi", key="status") if len(statuses) > 1 else []

shown = [run for run in runs if fits(run, words, chosen_statuses, chosen_projects)]
unused = [] if projects else ["project"]
if not shown:
    style.notice("No run passes these filters.")
    st.stop()
rows = [row(run) for run in shown]
clicked = table(
    [{title: value for title, value in row.items() if title not in unused} for row in rows],
    FORMATS,
    key="runs",
    choose=True,
    colours={"speed-up": [speed_colour(run) for run in shown], "peak Δ": [peak_colour(run) for run in shown]},
)
style.note(
    "Click a row to open the run. Eager and compiled are median latencies of one call, peak Δ is what compiling adds "
    "to the measured peak; kernels are those of one call as measured, or the calls in the emitted code where nothing "
    "was measured. A speed-up beyond the noise of its samples is coloured. Breaks and recompiles count the program's "
    "own calls, not those of measuring.",
    "runs",
)
if clicked is not None:
    st.switch_page("screens/overview.py", query_params={"run": shown[clicked].run_id})
