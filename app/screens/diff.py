"""Diff: what changed between two runs, and does it matter?"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.screens._notes import show_notes
from fusionscope.app.table import table
from fusionscope.app.words import arrow, metric_of
from fusionscope.storage import report
from fusionscope.storage.queries import compile, graphs
from fusionscope.storage.queries import diff as queries
from fusionscope.storage.queries.changes import AREAS, Change
from fusionscope.storage.queries.deltas import INSIDE, SHARED, Delta
from fusionscope.storage.queries.diff import Diff
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.reasons import REASONS

SCREENS = {"groups": "fusion", "kernels": "kernels", "memory": "memory", "breaks": "compile", "recompiles": "compile"}
SCREENS |= {"refusals": "fusion", "findings": "overview"}
WIDTHS = {"": 80, "what": 290, "source": 170, "baseline": 290, "this run": 290}
WIDER = {
    "refusals": {"what": 640, "baseline": 90, "this run": 90},
    "memory": {"what": 240, "source": 150, "baseline": 350, "this run": 350},
}
WIDER |= {"kernels": {"what": 230, "differs": 130, "source": 140, "baseline": 290, "this run": 290}}
MOST_LINES = 400  # of a graph's difference


def baseline(run: RunSummary) -> RunSummary | None:
    """The run in `?against=`, else the one before this of its name; with a picker."""
    others = [other for other in data.run_choice() if other.run_id != run.run_id]
    same = [other for other in others if (other.name, other.project) == (run.name, run.project)]
    asked = st.query_params.get("against")
    known = {other.run_id: other for other in (*same, *others)}
    before = next((other.run_id for other in same if other.created_at < run.created_at), None)
    shown = asked if asked in known else before
    offered = [run_id for run_id in known if run_id == shown or run_id in list(known)[:200]]
    with st.container(key="pair", horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = st.selectbox(
            "Baseline",
            offered,
            offered.index(shown) if shown else None,
            format_func=lambda run_id: title(known[run_id]),
            placeholder="Choose a run …",
            key=f"against-{run.run_id}-{shown}",
            width=420,
        )
        if chosen and st.button("Swap", key="swap"):
            st.query_params.from_dict({"run": chosen, "against": run.run_id})
            st.rerun()
    if chosen and chosen != shown:
        st.query_params["against"] = chosen
        st.rerun()
    return known[chosen] if chosen else None


def title(other: RunSummary) -> str:
    """What tells a run from others: name, device, torch, moment."""
    torch = other.torch_version and f"torch {other.torch_version}"
    return " · ".join(filter(None, (other.name, other.device, torch, f"{other.created_at:%d %b %H:%M:%S}")))


def answer(found: Diff) -> str:
    """The sentence: the figures that count, then what differs."""
    clauses = [clause for name in ("latency_us", "peak_bytes") if (clause := _moved(found.delta(name)))]
    things = [
        change for change in found.changes if change.area != "memory" or change.objects_before or change.objects_after
    ]
    counts = {area: sum(change.area == area for change in things) for area in AREAS}
    nouns = {
        "groups": ("piece of work is fused otherwise", "pieces of work are fused otherwise"),
        "kernels": ("kernel differs", "kernels differ"),
        "memory": ("buffer at the peak differs", "buffers at the peak differ"),
        "breaks": ("graph break differs", "graph breaks differ"),
        "recompiles": ("recompile differs", "recompiles differ"),
    }
    clauses += [style.plural(counts[area], *words) for area, words in nouns.items() if counts[area]]
    new, fixed = (sum((c.area, c.status) == ("findings", status) for c in found.changes) for status in ("new", "fixed"))
    clauses += [f"{style.plural(n, 'finding')} {word}" for n, word in ((new, "new"), (fixed, "fixed")) if n]
    if not any(change.area != "options" for change in found.changes):
        clauses.append("no decision differs")
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _moved(delta: Delta | None) -> str:
    if delta is None:
        return ""
    metric = metric_of(delta.metric, delta.unit)
    title = metric.title[0].lower() + metric.title[1:]
    if delta.before == delta.after:
        return f"{title} is the same"
    values = arrow(delta.before, delta.after, metric.form)
    if delta.noise == INSIDE:
        return f"{title} did not change beyond the noise ({values})"
    if delta.noise == SHARED:
        return (
            f"{title} changed as that of {delta.control} code did ({values}): the machine or torch, not the decisions"
        )
    return f"{title} {values} ({changed(delta)}{', beyond the noise' if delta.noise else ''})"


def changed(delta: Delta) -> str:
    """`−18.0 %`; from twice as much on `2.40×`."""
    if delta.before == delta.after:
        return "the same"
    twice = delta.share is not None and delta.share >= 1
    return style.ratio(delta.after / delta.before) if twice else style.change(delta.before, delta.after)


def unlike(found: Diff) -> str:
    """What makes the runs incomparable, by what it takes from the comparison."""
    by_effect: dict[str, list[str]] = {}
    for i in found.incomparable:
        by_effect.setdefault(i.spoils, []).append(f"{i.what} {i.before} → {i.after}")
    clauses = (f"{', '.join(whats)} (spoils {effect})" for effect, whats in by_effect.items())
    return f"Not alike: {'; '.join(clauses)}."


def figures(found: Diff) -> None:
    """The headline numbers of both runs, each with its change."""
    a, b = found.before, found.after
    latency = found.delta("latency_us")
    noise = report.noise(latency) if latency else "not measured in both"
    with st.container(horizontal=True, gap="small"):
        _figure("Latency", arrow(a.compiled_us, b.compiled_us, style.duration), noise, "comparison", b)
        old, new, how = a.compiled_peak_bytes, b.compiled_peak_bytes, ""
        if old is None or new is None:
            old, new, how = a.plan_peak_bytes, b.plan_peak_bytes, ", by the plan"
        _figure("Peak", arrow(old, new, style.size), _remark(old, new) + how, "memory", b)
        for label, name, screen in (
            ("Kernel calls", "kernel_calls", "kernels"),
            ("Graph breaks", "breaks", "compile"),
            ("Recompiles", "recompiles", "compile"),
            ("Refused pairs", "refusals", "fusion"),
        ):
            pair = (getattr(a, name), getattr(b, name))
            _figure(label, arrow(*pair, style.number), _remark(*pair), screen, b)


def _figure(label: str, value: str, remark: str, screen: str, run: RunSummary) -> None:
    style.figure(label, value or style.MISSING, remark if value else "not recorded", screen, run.run_id)


def _remark(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "not recorded in both"
    return "the same" if before == after else style.change(before, after) if before else f"+{style.number(after)}"


def measured(found: Diff) -> None:
    """Every quantity that both runs measured, with its noise."""
    if not found.deltas:
        style.note("not recorded: the two runs measured nothing in common.", "deltas")
        return
    rows = [
        {
            "quantity": metric_of(d.metric, d.unit).title,
            "variant": d.variant,
            "baseline": metric_of(d.metric, d.unit).form(d.before),
            "10–90 %": _interval(d, d.before_range),
            "this run": metric_of(d.metric, d.unit).form(d.after),
            "10–90 % ": _interval(d, d.after_range),
            "change": changed(d),
            "noise": report.noise(d),
        }
        for d in found.deltas
    ]
    config = style.right(list(rows[0])[1:7]) | {"quantity": {"width": 210}, "noise": {"width": 210}}
    table(rows, key="deltas", config=config)


def _interval(delta: Delta, bounds: tuple[float, float] | None) -> str:
    form = metric_of(delta.metric, delta.unit).form
    return style.MISSING if bounds is None else f"{form(bounds[0])} – {form(bounds[1])}"


def area(name: str, changes: list[Change], found: Diff) -> None:
    """One kind of difference: its heading with the count, a door, and the table."""
    with st.container(key=f"area-{name}", horizontal=True, vertical_alignment="center", gap="small"):
        style.section(f"{AREAS[name]}: {_statuses(changes)}", name)
        if name in SCREENS:
            screen = SCREENS[name]
            against = {"against": found.before.run_id} if screen in ("fusion", "kernels") else {}
            style.door("Open", screen, found.after.run_id, **against)
    rows = [line(change) for change in changes]
    hidden = {key for key in rows[0] if not any(row[key] for row in rows)}
    table(
        [{key: value for key, value in row.items() if key not in hidden} for row in rows],
        key=f"changes-{name}",
        config={title: {"width": width} for title, width in (WIDTHS | WIDER.get(name, {})).items()},
    )


def _statuses(changes: list[Change]) -> str:
    counts = {
        status: sum(change.status == status for change in changes)
        for status in dict.fromkeys(c.status for c in changes)
    }
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def line(change: Change) -> dict[str, str]:
    """A difference as a line; empty cells stand for what is not there."""
    refused = change.area == "refusals" and change.what in REASONS
    what = REASONS[change.what].sentence if refused else change.what
    code = change.what if change.area == "refusals" else ""
    absent = {"options": "not given", "refusals": "none"}.get(change.area, "not there")
    return {
        "": change.status,
        "class": code,
        "what": what,
        "differs": ", ".join(change.differs),
        "source": change.where or "",
        "baseline": change.before or absent,
        "this run": change.after or absent,
    }


def save(found: Diff) -> None:
    """The comparison as one offline page, for those without this library."""
    page = report.as_html(f"{found.before.name} → {found.after.name}", report.sections(found))
    name = f"diff-{found.before.run_id}-{found.after.run_id}.html"
    st.download_button("Save as one page", page, file_name=name, mime="text/html", type="tertiary")


def graph_diffs(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Graphs by their place and direction, and how their text differs; those that are the same are left out."""
    old, new = _texts(before), _texts(after)
    for place in dict.fromkeys((*old, *new)):
        lines = list(unified_diff(old.get(place, []), new.get(place, []), "baseline", "this run", lineterm="", n=2))
        if lines:
            more = [f"… and {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
            yield place, "\n".join([*lines[:MOST_LINES], *more])


def _texts(run_id: str) -> dict[str, list[str]]:
    """The graphs that Inductor lowered, by compile and direction, line by line.

    Without comments: they name folders and line numbers, and their wording is that of torch's version.
    """
    code = {
        graph: data.ask(compile.graph_code, run_id, graph.graph_id).code
        for graph in data.ask(graphs.decided_graphs, run_id)
    }
    return {
        f"{graph.compile_id} {graph.direction or ''}": [
            line for line in (text or "").splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
        for graph, text in code.items()
    }


run = data.current_run()
style.heading("Diff", style.about(run))
other = baseline(run)
if other is None:
    style.sentence("Nothing to compare with yet: choose a baseline, or tick two runs on the page Runs.")
    st.stop()

found = data.ask(queries.diff, other.run_id, run.run_id)
style.sentence(answer(found))
if found.incomparable:
    style.notice(unlike(found), "incomparable")
figures(found)
save(found)
for name in AREAS:
    if changes := [change for change in found.changes if change.area == name]:
        area(name, changes, found)
style.section("Measured in both", "deltas")
measured(found)
if differing := dict(graph_diffs(other.run_id, run.run_id)):
    style.section("Source of the graphs", "graphs")
    chosen = st.selectbox("Graph", list(differing), key="graph-diff", width=250, label_visibility="collapsed")
    st.code(differing[chosen], language="diff", height=320)
style.note(
    "Work is matched by operators and source lines, not by kernel names; buffers are those alive at the peak of each "
    f"plan. {report.NOISE} A kernel's time, and a finding that rests on times, counts as changed only where that of "
    "the whole call did; a kernel's by more than the width of its interval.",
    "how",
)
show_notes(run.run_id)
