"""What can be done to the ticked runs, views that are kept, and deleted runs that can be brought back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

import streamlit as st

from fusionscope.app import data, style
from fusionscope.storage import notes
from fusionscope.storage.queries import notes as queries
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import SavedView


def acts(ticked: Sequence[RunSummary]) -> None:
    """The row of buttons below the table: compare two, change one or several."""
    with st.container(key="acts", horizontal=True, vertical_alignment="center", gap="small"):
        if len(ticked) == 2:
            newer, older = sorted(ticked, key=lambda run: run.created_at, reverse=True)
            if st.button("Compare", type="primary", key="compare"):
                st.switch_page("screens/diff.py", query_params={"run": newer.run_id, "against": older.run_id})
        if data.read_only():
            return
        st.text(style.plural(len(ticked), "run"))
        with st.popover("Tag"):
            _worded(ticked, "tag", "Tag")
            _worded(ticked, "untag", "Take off a tag")
        if len(ticked) == 1:
            with st.popover("Rename"):
                _worded(ticked, "rename", "New name", ticked[0].name)
        archived = all(run.archived for run in ticked)
        if st.button("Bring out of the archive" if archived else "Archive", key="archive"):
            _each(ticked, "unarchive" if archived else "archive")
        if st.button("Delete", key="delete"):
            st.session_state["just-deleted"] = [run.run_id for run in ticked]
            _each(ticked, "delete")


def undo_delete() -> None:
    """The line that takes the last deletion back, and the list of what was deleted before."""
    if data.read_only():
        return
    deleted = data.ask(queries.deleted_runs)
    just = [run for run in st.session_state.get("just-deleted", []) if run in {run_id for run_id, *_ in deleted}]
    with st.container(key="undo", horizontal=True, vertical_alignment="center", gap="small"):
        if just:
            st.text(f"{style.plural(len(just), 'run')} deleted.")
            if st.button("Undo", key="undo-delete"):
                data.change(notes.act_on_all, just, "restore", None, data.author())
        if deleted:
            with st.popover(f"{style.plural(len(deleted), 'deleted run')}"):
                named = {run_id: f"{name} · {run_id}" for run_id, name, _ in deleted}
                chosen = st.multiselect("Bring back", list(named), format_func=named.__getitem__, key="restore")
                if st.button("Bring back", key="do-restore", disabled=not chosen):
                    data.change(notes.act_on_all, chosen, "restore", None, data.author())


def views(filters: Mapping[str, object]) -> None:
    """A popover with the views that are kept, and a field to keep the present one."""
    kept = data.ask(queries.saved_views, "")
    with st.popover("Views", width=130):
        for number, view in enumerate(kept):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.button(style.plain(view.name), key=f"view-{number}", on_click=_open, args=(view, list(filters)))
                if not data.read_only() and st.button("Give up", key=f"give-up-{number}", type="tertiary"):
                    data.change(notes.keep_view, view.name, "", None, data.author())
        if not kept:
            st.text("No view is kept yet.")
        if not data.read_only():
            name = st.text_input("Keep the present filters as", key="view-name")
            if st.button("Keep", key="keep-view", disabled=not name.strip()):
                present = {key: value for key, value in filters.items() if value}
                data.change(notes.keep_view, name, "", urlencode(present, doseq=True), data.author())


def _open(view: SavedView, keys: Sequence[str]) -> None:
    """Set the filters as the view has them, before the page is drawn."""
    asked: dict[str, list[str]] = {}
    for key, value in parse_qsl(view.query or ""):
        asked.setdefault(key, []).append(value)
    for key in keys:
        present = st.session_state.get(key)
        values = asked.get(key, [])
        if isinstance(present, list):
            st.session_state[key] = values
        elif isinstance(present, bool):
            st.session_state[key] = values == ["True"]
        elif values or isinstance(present, str):
            st.session_state[key] = values[0] if values else ""


def _worded(ticked: Sequence[RunSummary], act: str, label: str, present: str = "") -> None:
    word = st.text_input(label, value=present, key=f"word-{act}")
    if st.button(label, key=f"do-{act}", disabled=not word.strip()):
        _each(ticked, act, word)


def _each(runs: Sequence[RunSummary], act: str, word: str | None = None) -> None:
    ids = [run.run_id for run in runs]
    st.session_state["round"] = st.session_state.get("round", 0) + 1  # the table starts anew without its ticks
    data.change(notes.act_on_all, ids, act, word, data.author())
