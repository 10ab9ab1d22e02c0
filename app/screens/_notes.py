"""Notes and verdicts: what was said of a run and of the runs before it, and the form to say more."""

from __future__ import annotations

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


def show_linked(run_id: str) -> None:
    """The note that the address names, above what it is about; one sentence where the run has no such note."""
    asked = st.query_params.get("note")
    if asked is None:
        return
    linked = [note for note in data.ask(queries.pinned, run_id) if note.note_id == asked]
    if not linked:
        style.notice("The note that this address names was taken back, or is of another model.", "note")
    for note in linked:
        _remark(note, run_id, "linked")


def notes_here(page: str, run_id: str) -> None:
    """A popover with the notes on what is open, and the form to add one."""
    places = what_is_open(page, run_id)
    said = [note for note in data.ask(queries.pinned, run_id) if (note.anchor_kind, note.object_id) in places]
    here = [note for note in said if note.object_id]  # those on the run as a whole are on its Overview
    label = f"Notes on what is open · {len(here)}" if here else "Note on what is open"
    with st.popover(label, key="note-here", width="stretch"):
        for note in here:
            _remark(note, run_id, "here")
        form(run_id, places, "here")


def show_notes(run_id: str) -> None:
    """The section of the overview: all that was said, each note with a door to its object, and the form."""
    said = data.ask(queries.pinned, run_id)
    style.section("Review", "review")
    style.note(_counted(said, run_id), "review")
    for note in said[:LISTED]:
        _remark(note, run_id, "review")
    failed = [("finding", finding.code) for finding in data.failed_findings(run_id)]
    form(run_id, [("run", None), *failed], "overview")


def form(run_id: str, places: list[Place], key: str) -> None:
    """Say something of one of `places`; nothing where the library is not to be changed."""
    if data.read_only():
        style.note("The library is shown read-only: notes cannot be added here.", f"read-only-{key}")
        return
    about = f"about-{key}-{places[0][1]}"
    with st.form(f"note-{key}", clear_on_submit=True, border=False):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            st.selectbox("About", places, format_func=place_title, key=about, width=260)
            st.segmented_control("Verdict", VERDICTS, format_func=VERDICTS.__getitem__, key=f"verdict-{key}")
        st.text_area("Note", key=f"text-{key}", height=80, max_chars=notes.LONGEST, width=720)
        st.form_submit_button("Add note", on_click=_say, args=(run_id, about, key))


def _say(run_id: str, about: str, key: str) -> None:
    kind, object_id = st.session_state[about]
    text, verdict = (st.session_state[f"{field}-{key}"] for field in ("text", "verdict"))
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


def _remark(note: PinnedNote, run_id: str, where: str) -> None:
    """A note: verdict and text as plain text, who and when in grey; in the review, a door to its object."""
    with st.container(key=f"remark-{where}-{note.verdict}-{note.note_id}"):
        st.text(": ".join(filter(None, (VERDICTS.get(note.verdict or ""), note.text))))
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(_signature(note, run_id))
            if where != "review":
                return
            _door(note, run_id)
            if note.run_id == run_id and not data.read_only():
                key, args = f"withdraw-{note.note_id}", (notes.withdraw, note.note_id, data.author())
                st.button("Take back", key=key, type="tertiary", on_click=data.change, args=args)


def _signature(note: PinnedNote, run_id: str) -> str:
    about = "" if note.anchor_kind == "run" else f"on {KINDS[note.anchor_kind]} {note.label or ''}".rstrip()
    gone = "which is gone in this run" if note.gone else ""
    where = "" if note.run_id == run_id else f"on the run of {note.run_created_at:%d %b %H:%M}"
    return " · ".join(filter(None, (note.author, style.age(note.created_at), where, about, gone)))


def _door(note: PinnedNote, run_id: str) -> None:
    """A link to the note at what it is about, in the run that is shown."""
    place = note.object_id or ""
    graph, _, name = place.rpartition("/")
    match note.anchor_kind if place else "run":
        case "kernel":
            style.door("Kernels", "kernels", run_id, kernel=place, note=note.note_id)
        case "fusion_group":
            style.door("Fusion", "fusion", run_id, graph=graph, node=name, note=note.note_id)
        case "refusal":
            graph, _, first = graph.rpartition("/")
            style.door("Fusion", "fusion", run_id, graph=graph, node=first, note=note.note_id, **{"with": name})
        case "buffer":
            style.door("Memory", "memory", run_id, graph=graph, block=name, note=note.note_id)
        case "peak":
            style.door("Memory", "memory", run_id, graph=place, note=note.note_id)
        case _:
            style.door("Link", "overview", run_id, note=note.note_id)
