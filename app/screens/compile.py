"""Compile: why did compiling take this long, and did it happen again?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.phases import icicle_figure, stages_figure
from fusionscope.app.screens._absence import absence
from fusionscope.app.screens._early_decisions import early_decisions
from fusionscope.app.screens._torchscript import torchscript
from fusionscope.app.table import table
from fusionscope.app.words import compiled_work
from fusionscope.storage.queries import compile, overview
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import CacheEvent, Compile, CompilePhase, Counter, GraphBreak, Guard, Recompile

TRACE = ("trace_stream",)  # the hook that reads torch's structured trace
ROWS = 24  # compiles drawn; the table lists all
HOW = "torch's own compile events; each lies under the one it is part of. Some run in parallel: do not add bars."


def answer(run: RunSummary, compiles: list[Compile], spent_s: float | None) -> str:
    """The sentence."""
    if not compiles:
        return "No frame was compiled in this run."
    timed = [c for c in compiles if c.duration_s is not None]
    clauses = [compiled_work(run, compiles)]
    if spent_s is not None:
        clauses[0] += f", in {style.seconds(spent_s)}"
    if len(timed) > 1:
        slowest = max(timed, key=lambda c: c.duration_s or 0.0)
        where = f"{slowest.function} at {style.source_line(slowest.file, slowest.line)}"
        clauses.append(f"The slowest, {where}, took {style.seconds(slowest.duration_s)}")
    return ". ".join(clauses) + "."


def compile_row(c: Compile) -> dict[str, object]:
    """A compile as a line of the table."""
    return {
        "compile": c.compile_id,
        "function": style.short(c.function or style.MISSING, 44),
        "line": style.source_line(c.file, c.line),
        "outcome": c.outcome,
        "duration": c.duration_s,
        "attempts": c.attempts,
        "phase": c.phase,
        "resumes": c.resume_of or "",
        "again after": c.recompile_of or "",
        "cache": c.cache_state or "",
        "reason": c.reason or "",
    }


def picture(run: RunSummary, compiles: list[Compile]) -> None:
    """A row of stages per compile where there are several, and all phases of the chosen one."""
    phases = data.ask(compile.phases, run.run_id)
    style.section("Where the time went", "phases")
    longest = sorted(compiles, key=lambda c: -(c.duration_s or 0.0))[:ROWS]
    timed = [c for c in compiles if c in longest and any(p.compile_id == c.compile_id for p in phases)]
    if not timed:
        style.not_recorded(data.why_missing(run, *TRACE), "phases")
        return
    if len(timed) > 1:
        st.plotly_chart(stages_figure(timed, phases), config=style.PLOT, key="stages")
        rest = f" The {len(compiles) - ROWS} shorter ones are left out." if len(compiles) > ROWS else ""
        style.note(f"The stage at work is that of torch's innermost compile event at that time.{rest}", "stages")
    icicle(timed, longest[0], phases)


def icicle(timed: list[Compile], longest: Compile, phases: list[CompilePhase]) -> None:
    """Phases of one compile, at first the longest."""
    names = {c.compile_id: f"{c.compile_id} · {c.function}" for c in timed}
    chosen: str = longest.compile_id
    if len(timed) > 1:
        index = list(names).index(longest.compile_id)
        chosen = st.selectbox("Compile", list(names), index, format_func=names.__getitem__, key="compile", width=420)
    figure, hidden = icicle_figure([p for p in phases if p.compile_id == chosen])
    figure.update_layout(showlegend=len(timed) == 1)  # else the rows above have the legend
    st.plotly_chart(figure, config=style.PLOT, key="phases")
    rest = f" {style.plural(hidden, 'phase')} too short to draw." if hidden else ""
    style.note(f"{HOW}{rest}", "phases")


def breaks_table(breaks: list[GraphBreak]) -> None:
    """Graph breaks, and the whole text of the one that was clicked."""
    rows = [
        {
            "line": style.source_line(b.file, b.line),
            "times": b.executions,
            "kind": b.kind,
            "reason": b.reason or "",
            "hint": b.hint or "",
            "compile": b.compile_id,
        }
        for b in breaks
    ]
    chosen = breaks[table(rows, {"times": style.number}, key="breaks", choose=True) or 0]
    where = f"{chosen.file}:{chosen.line}" if chosen.file else "unknown place"
    times = chosen.executions_reason and f"Not recorded how often it ran: {chosen.executions_reason}."
    text = "\n".join(filter(None, (where, chosen.kind, chosen.reason, chosen.hint and f"Hint: {chosen.hint}", times)))
    st.code(text, language=None, wrap_lines=True)


def recompiles_table(recompiles: list[Recompile]) -> None:
    """Recompiles with the guard that failed."""
    rows = [
        {
            "compile": r.compile_id,
            "instead of": r.previous_compile_id or "",
            "guard that failed": r.guard or "",
            "value": r.guard_value or "",
            "reason": r.reason or "",
            "outcome": r.outcome,
            "times": r.count,
            "limit": r.compile_limit,
        }
        for r in recompiles
    ]
    chosen = recompiles[table(rows, {"times": style.number, "limit": style.number}, key="recompiles", choose=True) or 0]
    if text := chosen.reason or chosen.guard:
        st.code(text, language=None, wrap_lines=True)


def guards_table(guards: list[Guard]) -> None:
    """Guards of all compiles."""
    table(
        [
            {
                "compile": g.compile_id,
                "guard": g.expression,
                "guards": g.source or "",
                "line": style.source_line(g.file, g.line),
            }
            for g in guards
        ],
        key="guards",
        height=320 if len(guards) > 8 else None,
    )


def caches_table(events: list[CacheEvent]) -> None:
    """Lookups in the compile caches."""
    table(
        [
            {
                "compile": e.compile_id,
                "cache": e.cache,
                "state": e.state,
                "saved": e.saved_s,
                "reason": e.reason or "",
                "key": style.short(e.key or "", 24),
            }
            for e in events
        ],
        {"saved": style.seconds},
        key="caches",
    )


def counters_table(counters: list[Counter]) -> None:
    """torch's own counters."""
    rows = [{"counter": c.name, "value": c.value, "graph": c.graph_id or "whole run"} for c in counters]
    table(rows, {"value": style.number}, key="counters", height=320 if len(rows) > 8 else None)


def graphs_panel(run: RunSummary) -> None:
    """Graphs of every stage, and the text of the chosen one."""
    graphs = data.ask(compile.graphs, run.run_id)
    if not graphs:
        style.not_recorded(data.why_missing(run, *TRACE, "inductor_graph"), "graphs")
        return
    names = {g.graph_id: g.graph_id + (f" · {style.plural(g.nodes, 'node')}" if g.nodes else "") for g in graphs}
    left, right = st.columns([1, 1], vertical_alignment="bottom")
    with left:
        graph_id = st.selectbox("Graph", list(names), format_func=names.__getitem__, key="graph", bind="query-params")
    text = data.ask(compile.graph_code, run.run_id, graph_id)
    forms = {"graph": text.code, "wrapper and kernels": text.output_code}
    present = [form for form, code in forms.items() if code]
    if not present:
        style.not_recorded(data.why_missing(run, *TRACE), "graph-text")
        return
    with right:
        form = st.segmented_control("Text", present, default=present[-1], required=True, key=f"form-{graph_id}")
    shown = forms[form or present[-1]] or ""
    st.code(shown, language="python", line_numbers=True, height=480 if shown.count("\n") > 24 else "content")


def raw_facts(run: RunSummary) -> None:
    """Everything else that was recorded of the compiles."""
    guards = data.ask(compile.guards, run.run_id)
    events = data.ask(compile.cache_events, run.run_id)
    counters = data.ask(compile.counters, run.run_id)

    def shown(draw: Callable[[list[Any]], None], rows: list[Any], hooks: tuple[str, ...], nothing: str) -> None:
        draw(rows) if rows else absence(run, hooks, nothing, "no-facts")

    sides = {
        "Graphs": partial(graphs_panel, run),
        f"Guards ({len(guards)})": partial(shown, guards_table, guards, TRACE, "No guards were installed."),
        f"Cache lookups ({len(events)})": partial(
            shown, caches_table, events, TRACE, "torch looked up no compile cache."
        ),
        f"Counters ({len(counters)})": partial(shown, counters_table, counters, ("counters",), "No counter moved."),
        "TorchScript": partial(torchscript, run),
    }
    style.tabs(sides, f"raw-{run.run_id}")


run = data.current_run()
compiles = data.ask(compile.compiles, run.run_id)
style.heading("Compile", style.about(run))
style.sentence(answer(run, compiles, data.ask(overview.compile_seconds, run.run_id)))
if not compiles:
    style.not_recorded(data.why_missing(run, *TRACE))
    st.stop()
picture(run, compiles)

style.section("Compiles", "compiles")
table([compile_row(c) for c in compiles], {"duration": style.seconds, "attempts": style.number}, key="compiles")
style.note(
    "Of several attempts the last counts. Phase drive: the program's own calls; measure: compiled again by measuring.",
    "compiles",
)
breaks = data.ask(compile.breaks, run.run_id)
style.section(f"Graph breaks: {len(breaks)}", "breaks")
if breaks:
    breaks_table(breaks)
else:
    whole = all(c.outcome == "compiled" for c in compiles)
    told = "Dynamo traced every frame to its end." if whole else "Dynamo broke no graph; the frames above tell more."
    absence(run, TRACE, told, "no-breaks")
recompiles = data.ask(compile.recompiles, run.run_id)
again = {r.compile_id for r in recompiles if r.outcome == "done"}
style.section(f"Recompiles: {len(again)}", "recompiles")
if recompiles:
    recompiles_table(recompiles)
else:
    absence(run, TRACE, "No guard failed: nothing was compiled twice.", "no-recompiles")

style.section("Before and beside lowering", "early")
early_decisions(run)

style.section("Raw facts", "raw")
raw_facts(run)
