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

measured = [run.speed_up for run in runs if run.speed_up is not None]
faster = sum(speed_up > 1 for speed_up in measured)
style.sentence(
    f"{style.plural(len(runs), 'run')}, {len(measured)} measured against eager: "
    f"{faster} faster when compiled, {len(measured) - faster} not."
)
with st.container(horizontal=True, vertical_alignment="bottom"):
    words = st.text_input("Search", key="q", placeholder="name, device, mode, id", bind="query-params", width=300)
    projects = sorted({run.project for run in runs if run.project})
    chosen_projects = st.multiselect("Project", projects, key="project", width=260) if projects else []
    statuses = sorted({run.status for run in runs})
    chosen_statuses = st.pills("Status", statuses, selection_mode="multi", key="status") if len(statuses) > 1 else []

shown = [run for run in runs if fits(run, words, chosen_statuses, chosen_projects)]
if not shown:
    style.notice("No run passes these filters.")
    st.stop()
clicked = table(
    [row(run) for run in shown],
    FORMATS,
    key="runs",
    choose=True,
    colours={"speed-up": style.speed_colour, "peak Δ": style.delta_colour},
)
style.note(
    "Click a row to open the run. Eager and compiled are median latencies of one call, peak Δ is what compiling adds "
    "to the measured peak; kernels are those of one call as measured, or the calls in the emitted code where nothing "
    "was measured. Breaks and recompiles count the program's own calls, not those of measuring.",
    "runs",
)
if clicked is not None:
    st.switch_page("screens/overview.py", query_params={"run": shown[clicked].run_id})
