"""The cached door from the screens to the library, and the run that the page is about."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import streamlit as st
from duckdb import DuckDBPyConnection

from fusionscope.app import login, style
from fusionscope.storage import notes
from fusionscope.storage.database import NotWritable, StorageError
from fusionscope.storage.library import ImportReport, Library, default_address
from fusionscope.storage.queries import findings, graphs, overview, runs
from fusionscope.storage.queries import library as queries
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.reader import Reader
from fusionscope.storage.records import Finding

P = ParamSpec("P")
T = TypeVar("T")


def library() -> Library:
    """The library that this app shows: $FUSIONSCOPE_STORE, else ./fusionscope-store."""
    return Library(default_address())


@lru_cache
def reader(path: Path) -> Reader:
    """The connection to the library at `path` that all sessions of this process share."""
    return Reader(path)


def generation(path: Path) -> int:
    """A number that changes whenever the library file does; 0 where there is none yet."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return 0
    return facts.st_mtime_ns + facts.st_size


def ask(query: Callable[Concatenate[DuckDBPyConnection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Answer of `query(con, *args)`, remembered until the library changes.

    Rows are shared by all sessions: never alter them.
    """
    shown = library()
    name = f"{query.__module__}.{query.__qualname__}"
    answer: T = _answer((str(shown.path), generation(shown.path), name, args, kwargs), query)
    return answer


@st.cache_resource(show_spinner="Reading the library; an import may be in progress …", max_entries=400)
def _answer(key: tuple[str, int, str, tuple[Any, ...], dict[str, Any]], _query: Callable[..., Any]) -> Any:
    """Streamlit hashes `key`; the underscore keeps it from hashing the function's code."""
    *_, args, kwargs = key
    return reader(library().path).ask(_query, *args, **kwargs)


def read_only() -> bool:
    """Whether this app only shows: $FUSIONSCOPE_READ_ONLY is set, as on a server for others than the team."""
    return bool(os.environ.get("FUSIONSCOPE_READ_ONLY"))


def author() -> str | None:
    """Who writes notes: who is logged in, else the name that this process has."""
    return login.name() if login.required() else notes.default_author()


def change(what: Callable[Concatenate[DuckDBPyConnection, P], object], *args: P.args, **kwargs: P.kwargs) -> None:
    """Write to the library; for callbacks, so that the page is drawn with what it holds then.

    An error is kept, and shown by `tell_refusal` as its sentence.
    """
    reader(library().path).let_go()
    try:
        library().write(what, *args, **kwargs)
    except StorageError as error:
        st.session_state["refused"] = str(error)


def tell_refusal() -> None:
    """Say why the last change was not made."""
    if sentence := st.session_state.pop("refused", None):
        style.notice(sentence, "refused")


def import_inbox() -> ImportReport:
    """Bring finished runs into the library; never waits for another importer. A read-only store stays as it is.

    Whether anything is to be done is asked without opening the library, which a page would otherwise do at each click.
    """
    if read_only() or not (library().has_news() or ask(queries.without_conclusions, 1)):
        return ImportReport([], 0, [])
    reader(library().path).let_go()
    with st.spinner("Importing recorded runs …"):
        try:
            report = library().import_inbox()
            if ask(queries.without_conclusions, 1):
                library().conclude_older()
            return report
        except NotWritable:
            return ImportReport([], 0, [])


def run_choice() -> list[RunSummary]:
    """Every run of the library, newest first."""
    return ask(runs.library_runs)


def shown_run(known: list[RunSummary]) -> RunSummary | None:
    """The run in the URL, else the one shown before, else the newest; None where the URL names none of `known`."""
    asked = st.query_params.get("run") or st.session_state.get("run")
    if asked is None:
        return known[0] if known else None
    return next((run for run in known if run.run_id == asked), None)


def current_run() -> RunSummary:
    """The run that the page is about. The URL is left alone: each writing of it is a step of the back button.

    Stops the page: with the empty state where the library is empty, with one sentence where it lacks the run asked for.
    """
    known = run_choice()
    shown = shown_run(known)
    if not known:
        style.empty_library()
        st.stop()
    if shown is None:
        style.notice("The library does not hold the run that this address names. Choose one on the page Runs.")
        st.stop()
    st.session_state["run"] = shown.run_id
    return shown


def failed_findings(run_id: str) -> list[Finding]:
    """What was found wrong with a run, problems first."""
    return [finding for finding in ask(findings.findings, run_id) if finding.status == "failed"]


def graph_in_address(run_id: str) -> str | None:
    """The graph that the address names, else the one that the screens show without being asked; None without any."""
    known = ask(graphs.decided_graphs, run_id)
    asked = st.query_params.get("graph")
    if any(graph.graph_id == asked for graph in known):
        return asked
    largest = max(known, key=lambda graph: (graph.direction != "backward", graph.scheduler_nodes), default=None)
    return None if largest is None else largest.graph_id


def why_missing(run: RunSummary, *hooks: str) -> str:
    """Why a screen has nothing to show: the reasons of the hooks that record it, else the run's own.

    `hooks` are names, or beginnings of names, in hook_status.
    """
    statuses = ask(overview.hooks, run.run_id)
    reasons = [s.reason for s in statuses if s.hook.startswith(hooks) and s.state != "recorded" and s.reason]
    if reasons:
        return "; ".join(dict.fromkeys(reasons))
    return run.status_reason or "the run has no such observation"
