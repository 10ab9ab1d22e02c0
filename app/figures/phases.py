"""Where compiling spent its time: a row of stages per compile, and the phases of one compile as nested bars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import plotly.graph_objects as go

from fusionscope.app.style import plot_text, seconds
from fusionscope.storage.records import Compile, CompilePhase

LANE_PX = 24
NARROWEST = 1 / 800  # share of the time axis below which a phase is not drawn

# What a phase is about, by the beginning of torch's name for it; the first that fits counts.
STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Dynamo": ("#56B4E9", ("dynamo", "entire_frame", "compile_attempt", "bytecode_tracing", "build_guards", "gc")),
    "AOTAutograd": ("#CC79A7", ("create_aot", "aot_", "min_cut", "entire_backward")),
    "FX passes": ("#F0E442", ("pass.", "_recursive_pre", "_recursive_joint", "_recursive_post")),
    "Lowering": ("#E69F00", ("GraphLowering.run",)),
    "Scheduling and fusion": ("#D55E00", ("Scheduler.__init__", "Scheduler.fused")),
    "Writing code": ("#009E73", ("GraphLowering", "Scheduler", "PythonWrapper", "code_gen")),
    "Compiling kernels": ("#0072B2", ("async_compile", "compile_file", "PyCodeCache", "triton", "precompile")),
    "Other": ("#BDBDBD", ("",)),
}
DARK = {"#D55E00", "#009E73", "#0072B2"}  # colours that carry white text


@dataclass(frozen=True, slots=True)
class Bar:
    """A phase with its place in the nested picture: `lane` counts from the top."""

    phase: CompilePhase
    lane: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time, in seconds since the run began, during which one stage was at work."""

    stage: str
    start_s: float
    end_s: float


def stage_of(name: str) -> str:
    """The stage that a phase belongs to."""
    return next(stage for stage, (_, beginnings) in STAGES.items() if name.startswith(beginnings))


def stretches(phases: Iterable[CompilePhase]) -> list[Stretch]:
    """The stage at work at each time: that of the innermost phase, which is the one that began last.

    Nested and parallel phases so count once; stretches never overlap.
    """
    ordered = sorted(phases, key=lambda p: (p.start_s, -p.duration_s))
    times = sorted({t for p in ordered for t in (p.start_s, p.start_s + p.duration_s)})
    found: list[Stretch] = []
    running: list[CompilePhase] = []
    upcoming = iter(ordered)
    following = next(upcoming, None)
    for start, end in pairwise(times):
        while following is not None and following.start_s <= start:
            running.append(following)
            following = next(upcoming, None)
        running = [p for p in running if p.start_s + p.duration_s > start]
        if running:
            _extend(found, Stretch(stage_of(running[-1].name), start, end))
    return found


def _extend(found: list[Stretch], new: Stretch) -> None:
    """Add a stretch, joined to the one before where that is of the same stage."""
    if found and found[-1].stage == new.stage and found[-1].end_s == new.start_s:
        new = Stretch(new.stage, found.pop().start_s, new.end_s)
    found.append(new)


def bars(phases: Iterable[CompilePhase], narrowest_s: float = 0.0) -> list[Bar]:
    """Places of one compile's phases: below their parent, and beside nothing that runs at the same time.

    Phases shorter than `narrowest_s` seconds are left out.
    """
    lanes: dict[int, int] = {}  # phase_id -> lane
    free_from: list[float] = []  # per lane
    placed = []
    for phase in sorted(phases, key=lambda p: (p.start_s, -p.duration_s)):
        if phase.duration_s < narrowest_s:
            continue
        lane = lanes[phase.parent] + 1 if phase.parent in lanes else 0
        while lane < len(free_from) and free_from[lane] > phase.start_s + 1e-9:
            lane += 1
        free_from += [0.0] * (lane + 1 - len(free_from))
        free_from[lane] = phase.start_s + phase.duration_s
        lanes[phase.phase_id] = lane
        placed.append(Bar(phase, lane))
    return placed


def stages_figure(compiles: Sequence[Compile], phases: Sequence[CompilePhase]) -> go.Figure:
    """A row per compile, in the given order: which stage was at work when, in seconds since that compile began."""
    figure = go.Figure()
    of_compile = {c.compile_id: stretches(p for p in phases if p.compile_id == c.compile_id) for c in compiles}
    names = {c.compile_id: f"{c.compile_id}  {plot_text(c.function or '', 34)}" for c in compiles}
    for stage, (colour, _) in STAGES.items():
        drawn = [(key, s, row[0].start_s) for key, row in of_compile.items() for s in row if s.stage == stage]
        if drawn:
            figure.add_bar(
                name=stage,
                orientation="h",
                base=[s.start_s - began for _, s, began in drawn],
                x=[s.end_s - s.start_s for _, s, _ in drawn],
                y=[names[key] for key, _, _ in drawn],
                width=0.72,
                marker={"color": colour, "line": {"width": 0}},
                customdata=[[names[key], seconds(s.end_s - s.start_s)] for key, s, _ in drawn],
                hovertemplate=f"%{{customdata[0]}}<br>{stage}: %{{customdata[1]}}<extra></extra>",
            )
    figure.update_yaxes(categoryorder="array", categoryarray=list(names.values()), range=[len(names) - 0.5, -0.5])
    _frame(figure, len(compiles))
    return figure


def icicle_figure(phases: Sequence[CompilePhase]) -> tuple[go.Figure, int]:
    """The phases of one compile, and how many were too short to be drawn. Time counts from its first phase.

    Bars must not be added up: phases nest and run in parallel.
    """
    began = min(p.start_s for p in phases)
    span = max(p.start_s + p.duration_s for p in phases) - began
    placed = bars(phases, span * NARROWEST)
    figure = go.Figure()
    for stage, (colour, _) in STAGES.items():
        drawn = [bar for bar in placed if stage_of(bar.phase.name) == stage]
        if drawn:
            figure.add_trace(_nested(stage, colour, drawn, began))
    lanes = max((bar.lane + 1 for bar in placed), default=0)
    figure.update_yaxes(visible=False, range=[lanes - 0.5, -0.5])
    _frame(figure, lanes)
    return figure, len(phases) - len(placed)


def _nested(stage: str, colour: str, drawn: Sequence[Bar], began: float) -> go.Bar:
    return go.Bar(
        name=stage,
        orientation="h",
        base=[bar.phase.start_s - began for bar in drawn],
        x=[bar.phase.duration_s for bar in drawn],
        y=[bar.lane for bar in drawn],
        width=0.92,
        marker={"color": colour, "line": {"width": 0}},
        text=[plot_text(bar.phase.name, 44) for bar in drawn],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        insidetextfont={"size": 11, "color": "white" if colour in DARK else "#1E2227"},
        customdata=[
            [plot_text(b.phase.name, 80), seconds(b.phase.duration_s), seconds(b.phase.start_s - began)] for b in drawn
        ],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}, from %{customdata[2]}<extra></extra>",
    )


def _frame(figure: go.Figure, lanes: int) -> None:
    """Axes, legend and a height that gives every lane the same room."""
    figure.update_xaxes(title="seconds since the compile began", rangemode="tozero", zeroline=False)
    figure.update_yaxes(fixedrange=True, ticksuffix="  ")
    figure.update_layout(
        barmode="overlay",
        height=84 + LANE_PX * lanes,
        margin={"l": 8, "r": 8, "t": 0, "b": 0},
        uniformtext={"mode": "hide", "minsize": 10},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        showlegend=True,
    )
