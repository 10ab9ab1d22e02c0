"""Why a part of a screen is empty: nothing happened, or nothing was recorded."""

from __future__ import annotations

from fusionscope.app import data, style
from fusionscope.storage.queries import overview
from fusionscope.storage.queries.runs import RunSummary


def absence(run: RunSummary, hooks: tuple[str, ...], nothing: str, key: str) -> None:
    """Say `nothing` where each of these hooks recorded all it saw; else say that it was not recorded, and why."""
    states = {status.hook: status.state for status in data.ask(overview.hooks, run.run_id)}
    if all(states.get(hook) == "recorded" for hook in hooks):
        style.note(nothing, key)
    else:
        style.not_recorded(data.why_missing(run, *hooks), key)
