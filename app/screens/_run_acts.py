"""What can be done to the ticked runs, views that are kept, and deleted runs that can be brought back."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qs, urlencode

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens._run_filters import KEYS, set_filters
from fusionscope.app.screens._run_rows import Line, unfolded
from fusionscope.storage import notes
from fusionscope.storage.queries import notes as queries
from fusionscope.storage.queries.runs import RunSummary


def acts(ticked: Sequence[Line], fold: str) -> None:
    """The row of buttons below the table: compare two lines, change all runs of one or several."""
    runs = [run for line in ticked for run in line.runs]
    with st.container(key="acts", horizontal=True, vertical_alignment="center", gap="small"):
        if len(ticked) == 2:
            newer, older = sorted((line.run for line in ticked), key=lambda run: run.created_at, reverse=True)
            if st.button("Compare", type="primary", key="compare"):
                st.switch_page("screens/diff.py", query_params={"run": newer.run_id, "against": older.run_id})
        if len(ticked) == 1 and len(runs) > 1:
            label, asked = f"Show its {style.number(len(runs))} runs", unfolded(ticked[0], fold)
            st.button(label, key="unfold", on_click=set_filters, args=(asked,))
        if not data.read_only():
            _changes(runs)


def _changes(runs: Sequence[RunSummary]) -> None:
    st.text(style.plural(len(runs), "run"))
    with st.popover("Tag"):
        _worded(runs, "tag", "Tag")
        _worded(runs, "untag", "Take off a tag")
    if len(runs) == 1:
        with st.popover("Rename"):
            _worded(runs, "rename", "New name", runs[0].name)
    archived = all(run.archived for run in runs)
    label, act = ("Bring out of the archive", "unarchive") if archived else ("Archive", "archive")
    st.button(label, key="archive", on_click=_each, args=(runs, act))
    st.button("Delete", key="delete", on_click=_each, args=(runs, "delete"))


def undo_delete() -> None:
    """The line that takes the last deletion back, and the list of what was deleted before."""
    if data.read_only():
        return
    deleted = data.ask(queries.deleted_runs)
    just = [run for run in st.session_state.get("just-deleted", []) if run in {run_id for run_id, *_ in deleted}]
    with st.container(key="undo", horizontal=True, vertical_alignment="center", gap="small"):
        if just:
            st.text(f"{style.plural(len(just), 'run')} deleted.")
            st.button("Undo", key="undo-delete", on_click=_restore, args=(just,))
        if deleted:
            with st.popover(f"{style.plural(len(deleted), 'deleted run')}"):
                named = {run_id: f"{name} · {run_id}" for run_id, name, _ in deleted}
                chosen = st.multiselect("Bring back", list(named), format_func=named.__getitem__, key="restore")
                st.button("Bring back", key="do-restore", disabled=not chosen, on_click=_restore, args=(chosen,))


def views() -> None:
    """A popover with the views that are kept, and a field to keep the present filters."""
    kept = data.ask(queries.saved_views, "")
    with st.popover("Views"):
        for number, view in enumerate(kept):
            with st.container(horizontal=True, vertical_alignment="center"):
                asked = parse_qs(view.query or "")
                st.button(style.plain(view.name), key=f"view-{number}", on_click=set_filters, args=(asked,))
                if not data.read_only():
                    given_up = (view.name, None)
                    st.button("Give up", key=f"give-up-{number}", type="tertiary", on_click=_keep, args=given_up)
        if not kept:
            st.text("No view is kept yet.")
        if not data.read_only():
            name = st.text_input("Keep the present filters as", key="view-name")
            present = {key: st.session_state.get(key) for key in (*KEYS, "fold")}
            query = urlencode({key: value for key, value in present.items() if value}, doseq=True)
            st.button("Keep", key="keep-view", disabled=not name.strip(), on_click=_keep, args=(name, query))


def _keep(name: str, query: str | None) -> None:
    data.change(notes.keep_view, name, "", query, data.author())


def _worded(runs: Sequence[RunSummary], act: str, label: str, present: str = "") -> None:
    word = st.text_input(label, value=present, key=f"word-{act}")
    st.button(label, key=f"do-{act}", disabled=not word.strip(), on_click=_each, args=(runs, act, word))


def _each(runs: Sequence[RunSummary], act: str, word: str | None = None) -> None:
    ids = [run.run_id for run in runs]
    st.session_state["just-deleted"] = ids if act == "delete" else []
    st.session_state["round"] = st.session_state.get("round", 0) + 1  # the table starts anew without its ticks
    data.change(notes.act_on_all, ids, act, word, data.author())


def _restore(run_ids: Sequence[str]) -> None:
    data.change(notes.act_on_all, run_ids, "restore", None, data.author())
