"""The button beside a finding that tries what it advises, and what came of it."""

from __future__ import annotations

import streamlit as st

from fusionscope.app import data, style, trials
from fusionscope.app.words import arrow
from fusionscope.storage.findings import RULES
from fusionscope.storage.queries import overview
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import Finding

TRIALS = {rule.code: rule.trial for rule in RULES if rule.trial}
EVERY_S = 2.0


def show_trial(finding: Finding, run_id: str) -> None:
    """Offer the trial of a finding, tell that it runs, or show its measured effect. Draws nothing where none helps."""
    trial = TRIALS.get(finding.code)
    if not trial:
        return
    tag = trials.tag_of(run_id, finding.code)
    tried = [run for run in data.run_choice() if run.run_id in data.ask(overview.tagged, tag)]
    if tried:
        _effect(next(run for run in data.run_choice() if run.run_id == run_id), tried[0])
    elif trials.running(tag):
        _waiting(tag)
    elif not data.read_only():
        _offer(tag, finding.code, trial, run_id)


def _offer(tag: str, code: str, trial: tuple[str, ...], run_id: str) -> None:
    run = data.ask(overview.run, run_id)
    command = trials.command_of(run, code, trial, data.library().store.resolve())
    if command is None or run.cwd is None:
        return
    if error := trials.failure(tag):
        st.text(f"The trial failed: {error}")
    if st.button("Try it", key=f"try-{code}", help=f"Records the run again with {' '.join(trial)}.", type="tertiary"):
        trials.start(tag, command, run.cwd)
        st.rerun()


@st.fragment(run_every=EVERY_S)
def _waiting(tag: str) -> None:
    """Looks again until the recording has ended, then draws the page anew, which imports the run."""
    st.text("Recording the trial …")
    if not trials.running(tag):
        st.rerun()


def _effect(before: RunSummary, after: RunSummary) -> None:
    """What the option did to a call, and the door to the new run."""
    if after.compiled_us is None or not before.compiled_us:
        st.text("The trial was recorded, but not timed.")
    else:
        times = arrow(before.compiled_us, after.compiled_us, style.duration, " to ")
        st.text(f"Tried: a compiled call went from {times} ({style.change(before.compiled_us, after.compiled_us)}).")
    style.door("The trial", "overview", after.run_id)
