"""The filters of the page Runs: what each asks of a run, and their row of fields, which the address keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import streamlit as st

from fusionscope.app.screens._notes import VERDICTS
from fusionscope.storage.queries.runs import RunSummary


@dataclass(frozen=True)
class Facet:
    """A property by whose values runs are chosen."""

    title: str
    values: Callable[[RunSummary], Sequence[str | None]]
    width: int  # px


FACETS = {
    "project": Facet("Project", lambda run: (run.project,), 130),
    "name": Facet("Name", lambda run: (run.name,), 155),
    "tag": Facet("Tag", lambda run: run.tags, 115),
    "device": Facet("Device", lambda run: (run.device,), 150),
    "torch": Facet("Torch", lambda run: (run.torch_version,), 125),
    "commit": Facet("Commit", lambda run: (run.git_commit and run.git_commit[:10],), 280),
    "author": Facet("Author", lambda run: (run.author,), 280),
    "mode": Facet("Mode", lambda run: (run.mode or "default",), 280),
    "verdict": Facet("Verdict", lambda run: (VERDICTS.get(run.verdict or "", "No verdict"),), 280),
    "status": Facet("Status", lambda run: (run.status,), 280),
}
IN_ROW = ("project", "name", "tag", "device", "torch")
FURTHER = tuple(key for key in FACETS if key not in IN_ROW)
DATES = {"since": "Recorded from", "until": "Recorded until"}
KEYS = ("q", *FACETS, *DATES, "archived")


@dataclass(frozen=True)
class Filters:
    """What is let through; empty lets everything through but the archive."""

    words: str = ""
    chosen: Mapping[str, Sequence[str]] = field(default_factory=dict)  # facet -> values, of which a run has one
    since: date | None = None  # days of UTC, both included
    until: date | None = None
    archived: bool = False

    def let_through(self, run: RunSummary) -> bool:
        """Whether a run passes all of them."""
        return (
            (self.archived or not run.archived)
            and (self.since is None or run.created_at.date() >= self.since)
            and (self.until is None or run.created_at.date() <= self.until)
            and all(any(value in wanted for value in FACETS[key].values(run)) for key, wanted in self.chosen.items())
            and (not self.words or all(word in _text(run) for word in self.words.lower().split()))
        )


def _text(run: RunSummary) -> str:
    """What the search looks at."""
    said = (run.name, run.run_id, run.project, run.device, run.mode, run.torch_version, run.author, run.git_commit)
    return " ".join(filter(None, (*said, *run.tags, run.group_id, run.worst, run.verdict))).lower()


def show_filters(runs: Sequence[RunSummary]) -> Filters:
    """Draw the row; a property in which the runs do not differ has no field unless the address asks for it."""
    with st.container(key="filters", horizontal=True, vertical_alignment="bottom", gap="small"):
        words = st.text_input("Search", key="q", placeholder="name, id, commit …", bind="query-params", width=165)
        chosen = {key: _choose(key, runs) for key in IN_ROW}
        further = sum(bool(_asked(key)) for key in (*FURTHER, *DATES, "archived"))
        with st.popover(f"More · {further}" if further else "More", key="more-filters"):
            chosen |= {key: _choose(key, runs) for key in FURTHER}
            since, until = (
                st.date_input(title, None, key=key, format="YYYY-MM-DD", bind="query-params", width=280)
                for key, title in DATES.items()
            )
            archived = st.toggle("Show archived runs", key="archived", bind="query-params")
        if any(map(_asked, KEYS)):
            st.button("Clear", key="clear-filters", type="tertiary", on_click=set_filters, args=({},))
    return Filters(words, {key: values for key, values in chosen.items() if values}, since, until, archived)


def _choose(key: str, runs: Sequence[RunSummary]) -> list[str]:
    facet = FACETS[key]
    asked = set(_asked(key))
    present = {value for run in runs for value in facet.values(run) if value}
    if len(present) < 2 and not asked:
        return []
    return st.multiselect(
        facet.title, sorted(present | asked), key=key, bind="query-params", width=facet.width, placeholder="any"
    )


def _asked(key: str) -> Any:
    """What a field holds, or will hold once it is drawn: what the address says."""
    return st.session_state[key] if key in st.session_state else st.query_params.get_all(key)


def set_filters(asked: Mapping[str, Sequence[str]]) -> None:
    """Filter by what is asked and by nothing else, before the page is drawn; the folding stays unless it is asked."""
    for key in FACETS:
        st.session_state[key] = list(asked.get(key, ()))
    for key in DATES:
        st.session_state[key] = next(map(date.fromisoformat, asked.get(key, ())), None)
    st.session_state["q"] = next(iter(asked.get("q", ())), "")
    st.session_state["archived"] = "archived" in asked
    if "fold" in asked:
        st.session_state["fold"] = asked["fold"][0]
