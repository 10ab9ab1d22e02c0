"""Another curve laid over the one that is shown, and what differs at their two peaks, by source line."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens._scene import PLAN, name_of
from fusionscope.app.table import table
from fusionscope.storage.queries import blocks, memory
from fusionscope.storage.queries.blocks import Placed, Scene
from fusionscope.storage.queries.memory import Curve
from fusionscope.storage.queries.runs import RunSummary

MOST_RUNS = 40  # that one can choose from, the newest
Other = tuple[Scene, Curve, str]  # scene, curve, title


def choose_other(run: RunSummary, scene: Scene, curves: Sequence[Curve]) -> Other | None:
    """Picker of what to lay over: another variant of this run, or the same of another run; kept in `?with=`."""
    titles = {"": "nothing", **_variants(scene, curves), **_runs(run)}
    asked = st.query_params.get("with", "")
    asked = asked if asked in titles else ""
    chosen = st.selectbox(
        "Lay over",
        list(titles),
        list(titles).index(asked),
        format_func=titles.__getitem__,
        key=f"with-{asked}",
        width=210,
    )
    if chosen != asked:
        st.query_params["with"] = chosen
    if not chosen:
        return None
    return _other(run.run_id, scene, chosen, titles[chosen])


def _variants(scene: Scene, curves: Sequence[Curve]) -> dict[str, str]:
    others = [curve for curve in curves if curve.basis == "measured" and curve.variant != scene.variant]
    return {curve.variant: name_of(curve.variant) for curve in others} if scene.basis == "measured" else {}


def _runs(run: RunSummary) -> dict[str, str]:
    known = [other for other in data.run_choice() if other.run_id != run.run_id][:MOST_RUNS]
    return {other.run_id: f"{other.name}, {other.run_id}" for other in known}


def _other(run_id: str, scene: Scene, chosen: str, title: str) -> Other | None:
    """The like of `scene` in a variant of this run, or in another run: the graph of the same name, or the step."""
    variant, other_run = (chosen, run_id) if len(chosen) < 12 else (scene.variant, chosen)
    found = data.ask(memory.curves, other_run, scene.graph_id)
    like = [c for c in found if (c.graph_id, c.basis) == (scene.graph_id, scene.basis) and c.variant == variant]
    like = like or [c for c in found if c.basis == "measured" and scene.basis == "measured"]
    if not like:
        style.note(
            f"{title} has no such curve: {name_of(PLAN) if scene.basis == PLAN else 'no measured step'}.", "with"
        )
        return None
    curve = like[0]
    return Scene(other_run, curve.graph_id, curve.basis, curve.variant, scene.axis), curve, title


def difference(scene: Scene, curve: Curve, other: Other) -> None:
    """The live sets at the two peaks, line by line, the largest difference first."""
    style.section("What differs at the two peaks, by source line", "difference")
    theirs = _by_place(data.ask(blocks.by_source, other[0], other[1].peak_step))
    own = _by_place(data.ask(blocks.by_source, scene, curve.peak_step))
    rows = [_row(own.get(place), theirs.get(place)) for place in own.keys() | theirs.keys()]
    rows.sort(key=lambda row: -abs(row["difference"]))  # type: ignore[arg-type]
    formats = {"here": style.size, "there": style.size, "difference": style.size_change}
    table(rows, formats, key="difference", height=320 if len(rows) > 10 else None)
    change = curve.peak_bytes - other[1].peak_bytes
    style.note(
        f"Here {style.number(curve.peak_bytes)} B, there ({other[2]}) {style.number(other[1].peak_bytes)} B: "
        f"{style.size_change(change)}. Lines are matched by file name, number and text; what was there before the call "
        "is left out.",
        "difference",
    )


def _by_place(placed: Sequence[Placed]) -> dict[tuple[str, str], Placed]:
    return {(style.source_line(p.file, p.line) if p.file else p.label or "", p.source_text or ""): p for p in placed}


def _row(own: Placed | None, theirs: Placed | None) -> dict[str, object]:
    known = own or theirs
    assert known is not None
    here, there = own.bytes if own else 0, theirs.bytes if theirs else 0
    return {
        "source": style.source_line(known.file, known.line) if known.file else known.label or "no source line",
        "line": known.source_text or "",
        "here": here,
        "there": there,
        "difference": here - there,
        "blocks here": own.blocks if own else 0,
        "blocks there": theirs.blocks if theirs else 0,
    }
