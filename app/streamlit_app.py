"""Entry of the app: page frame, import of new runs, navigation and the chosen run."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from threading import Thread

import streamlit as st
from streamlit.navigation.page import Page

from fusionscope.app import data, login, screens, style
from fusionscope.app.screens import PAGES, _notes
from fusionscope.storage.database import StorageError
from fusionscope.storage.queries.runs import RunSummary

HERE = Path(__file__).parent
SIDEBAR_PX = 236
OFFERED = 200  # runs in the picker; the page Runs finds the others


def sidebar(runs: list[RunSummary], path: str) -> None:
    """Navigation, each address naming the chosen run, and the choice itself."""
    shown = data.shown_run(runs)
    style.brand()
    for title, _, file in PAGES:
        st.page_link(f"screens/{file}", label=title, query_params={"run": shown.run_id} if shown else None)
    if shown:
        choose_run(runs, shown)
        _notes.notes_here(path, shown.run_id)


def choose_run(runs: list[RunSummary], shown: RunSummary) -> None:
    """Picker of the run; the choice goes into the URL, whence every screen takes it."""
    times = Counter(run.name for run in runs)

    def title(run: RunSummary) -> str:
        return run.name if times[run.name] == 1 else f"{run.name} · {run.created_at:%d %b %H:%M}"

    known = {run.run_id: run for run in (*runs[:OFFERED], shown)}  # by id: a run changes with its notes
    chosen = st.selectbox(
        "Run",
        known,
        list(known).index(shown.run_id),
        format_func=lambda run: title(known[run]),
        key=f"run-{shown.run_id}",
    )
    if chosen != shown.run_id:
        st.query_params.from_dict({"run": chosen})
        st.rerun()


def screen(title: str, path: str, file: str) -> Page:
    """A page of the app; the start page has no path."""
    return st.Page(HERE / "screens" / file, title=title, url_path=path or None, default=not path)


@st.cache_resource(show_spinner=False)
def warm() -> None:
    """Import in the background, once in a process, what the other screens need: half a second of their first opening.

    After the first page is drawn, which would have to wait for it.
    """
    parts = [f"{screens.__name__}.{part.name}" for part in iter_modules(screens.__path__) if part.name.startswith("_")]
    Thread(target=lambda: [import_module(part) for part in parts], name="imports", daemon=True).start()


def main() -> None:
    """Draw the page: frame, sidebar, then the screen that was asked for."""
    icon = str(HERE / "static" / "icon.svg")  # a named icon would be fetched from Google's servers
    st.set_page_config("Fusionscope", icon, layout="wide", initial_sidebar_state=SIDEBAR_PX)
    st.html(HERE / "static" / "frame.css")
    login.require()
    page = st.navigation([screen(*words) for words in PAGES], position="hidden")
    try:
        report = data.import_inbox()
        runs = data.run_choice()  # outside the sidebar, so that a wait shows where one looks
        with st.sidebar:
            sidebar(runs, page.url_path)
            login.log_out()
        for name, reason in report.rejected:
            style.notice(f"{name} was not imported: {reason}", f"rejected-{name}")
        data.tell_refusal()
        if shown := data.shown_run(runs):
            _notes.show_linked(shown.run_id)
        page.run()
    except StorageError as error:
        style.notice(str(error))
        st.button("Try again")
    warm()


main()
