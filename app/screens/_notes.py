"""Notes and verdicts: what was said of a run and of the runs before it, and the form to say more."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fusionscope.app import data, style
from fusionscope.storage import notes
from fusionscope.storage.queries import notes as queries
from fusionscope.storage.queries.notes import PinnedNote

VERDICTS = {"looks_good": "Looks good", "needs_work": "Needs work", "regression": "Regression"}
KINDS = {
    "run": "this run",
    "kernel": "kernel",
    "fusion_group": "fusion group",
    "refusal": "refused pair",
    "buffer": "buffer",
    "peak": "peak of the plan",
    "finding": "finding",
}
LISTED = 20
Place = tuple[str, str | None]  # kind and id of an object


def what_is_open(page: str, run_id: str) -> list[Place]:
    """The objects that the address names, the closest first; the run itself last."""
    node, other = (st.query_params.get(name, "").partition("/")[0] for name in ("node", "with"))
    graph = data.graph_in_address(run_id)
    found: list[Place] = []
    if page == "kernels" and (kernel := st.query_params.get("kernel")):
        found.append(("kernel", kernel))
    if page == "fusion" and graph and node:
        if other:
            found.append(("refusal", f"{graph}/{node}/{other}"))
        found.append(("fusion_group", f"{graph}/{node}"))
    if page == "memory" and graph:
        if block := st.query_params.get("block"):
            found.append(("buffer", f"{graph}/{block}"))
        found.append(("peak", graph))
    return [*found, ("run", None)]


def show_notes(run_id: str) -> None:
    """The section of the overview: all that was said, each note with a door to its object, and the form."""
    said = data.ask(queries.pinned, run_id)
    style.section("Review", "review")
    style.note(_counted(said, run_id), "review")
    lit = st.query_params.get("note")
    for note in said[:LISTED]:
        _entry(note, run_id, lit=note.note_id == lit)
    failed = [("finding", finding.code) for finding in data.failed_findings(run_id)]
    form(run_id, [("run", None), *failed], "overview")


def form(run_id: str, places: list[Place], key: str) -> None:
    """Say something of one of `places`; nothing where the library is not to be changed."""
    if data.read_only():
        style.note("The library is shown read-only: notes cannot be added here.", f"read-only-{key}")
        return
    with st.form(f"note-{key}", clear_on_submit=True, border=False):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            place = st.selectbox("About", places, format_func=place_title, key=f"about-{key}-{places[0][1]}", width=260)
            verdict = st.segmented_control("Verdict", VERDICTS, format_func=VERDICTS.__getitem__, key=f"verdict-{key}")
        text = st.text_area("Note", key=f"text-{key}", height=80, max_chars=notes.LONGEST, width=720)
        if st.form_submit_button("Add note"):
            kind, object_id = place
            data.change(notes.say, run_id, text, verdict, kind=kind, object_id=object_id, author=data.author())


def place_title(place: Place) -> str:
    """What a note would be about."""
    kind, object_id = place
    return KINDS[kind] if object_id is None else f"{KINDS[kind]} {style.short(object_id, 40)}"


def _counted(said: list[PinnedNote], run_id: str) -> str:
    if not said:
        return "No notes yet. A note is pinned to what it is about, and found again in the next run of this name."
    here = sum(note.run_id == run_id for note in said)
    gone = sum(note.gone for note in said)
    parts = [f"{style.plural(here, 'note')} on this run", f"{len(said) - here} on earlier runs of this name"]
    return ", ".join(parts) + (f"; of {gone} the object is gone" if gone else "") + "."


def _entry(note: PinnedNote, run_id: str, *, lit: bool) -> None:
    """One note: verdict and text as plain text, who and when in grey, a door to its object."""
    with st.container(key=f"remark-{'lit' if lit else 'plain'}-{note.verdict}-{note.note_id}"):
        st.text(": ".join(filter(None, (VERDICTS.get(note.verdict or ""), note.text))))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(_signature(note, run_id))
            _door(note, run_id)
            if note.run_id == run_id and not data.read_only():
                _act("Take back", f"withdraw-{note.note_id}", lambda: data.change(notes.withdraw, note.note_id))


def _act(label: str, key: str, change: Callable[[], None]) -> None:
    if st.button(label, key=key, type="tertiary"):
        change()


def _signature(note: PinnedNote, run_id: str) -> str:
    about = "" if note.anchor_kind == "run" else f"on {KINDS[note.anchor_kind]} {note.label or ''}".rstrip()
    gone = "which is gone in this run" if note.gone else ""
    where = "" if note.run_id == run_id else f"on the run of {note.run_created_at:%d %b %H:%M}"
    return " · ".join(filter(None, (note.author, style.age(note.created_at), where, about, gone)))


def _door(note: PinnedNote, run_id: str) -> None:
    """A link to what the note is about, in the run that is shown."""
    if note.object_id is None:
        return
    graph, _, name = note.object_id.rpartition("/")
    match note.anchor_kind:
        case "kernel":
            style.door("Kernels", "kernels", run_id, kernel=note.object_id, note=note.note_id)
        case "fusion_group":
            style.door("Fusion", "fusion", run_id, graph=graph, node=name, note=note.note_id)
        case "refusal":
            graph, _, first = graph.rpartition("/")
            style.door("Fusion", "fusion", run_id, graph=graph, node=first, note=note.note_id, **{"with": name})
        case "buffer":
            style.door("Memory", "memory", run_id, graph=graph, block=name, note=note.note_id)
        case "peak":
            style.door("Memory", "memory", run_id, graph=note.object_id, note=note.note_id)
