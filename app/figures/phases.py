"""Phases of compiling as nested bars: a band per compile, time to the right, a phase under the one it is part of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from fusionscope.app.style import duration, seconds, short
from fusionscope.storage.records import Compile, CompilePhase

LANE_PX = 24
NARROWEST = 1 / 800  # share of the time axis below which a phase is not drawn

# What a phase is about, by the beginning of torch's name for it; the first that fits counts.
STAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Dynamo: tracing": ("#56B4E9", ("entire_frame", "compile_attempt", "bytecode_tracing", "build_guards", "gc")),
    "AOTAutograd": ("#CC79A7", ("create_aot", "aot_", "min_cut", "joint", "_recursive_joint")),
    "FX passes": ("#F0E442", ("pass.", "_recursive_pre", "_recursive_post", "post_grad", "pre_grad")),
    "Inductor: lowering": ("#E69F00", ("GraphLowering",)),
    "Inductor: scheduling and fusion": ("#D55E00", ("Scheduler",)),
    "Inductor: writing code": ("#009E73", ("PythonWrapper", "PyCodeCache", "code_gen", "codegen")),
    "Compiling kernels": ("#0072B2", ("async_compile", "compile_file", "triton", "precompile")),
    "Other": ("#BDBDBD", ("",)),
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A phase with its place: `lane` counts from the top of its compile's band."""

    phase: CompilePhase
    lane: int
    start_s: float  # since the compile began


def stage_of(name: str) -> str:
    """The stage that a phase belongs to."""
    return next(stage for stage, (_, beginnings) in STAGES.items() if name.startswith(beginnings))


def bars(phases: Iterable[CompilePhase], narrowest_s: float = 0.0) -> list[Bar]:
    """Places of one compile's phases: below their parent, and beside nothing that runs at the same time.

    Phases shorter than `narrowest_s` seconds are left out.
    """
    ordered = sorted(phases, key=lambda p: (p.start_s, -p.duration_s))
    lanes: dict[int, int] = {}  # phase_id -> lane
    free_from: list[float] = []  # per lane
    placed = []
    for phase in ordered:
        if phase.duration_s < narrowest_s:
            continue
        lane = lanes[phase.parent] + 1 if phase.parent in lanes else 0
        while lane < len(free_from) and free_from[lane] > phase.start_s + 1e-9:
            lane += 1
        free_from += [0.0] * (lane + 1 - len(free_from))
        free_from[lane] = phase.start_s + phase.duration_s
        lanes[phase.phase_id] = lane
        placed.append(Bar(phase, lane, phase.start_s - ordered[0].start_s))
    return placed


def phases_figure(compiles: Sequence[Compile], phases: Sequence[CompilePhase]) -> tuple[go.Figure, int]:
    """Bands of the given compiles, in their order, and the number of phases too short to be drawn.

    The time axis counts seconds since each compile began. Bars are never added up: phases nest and run in parallel.
    """
    of_compile = {c.compile_id: [p for p in phases if p.compile_id == c.compile_id] for c in compiles}
    span = max((_span(group) for group in of_compile.values()), default=0.0)
    bands = {compile_id: bars(group, span * NARROWEST) for compile_id, group in of_compile.items()}
    offsets, height = _offsets(bands)
    figure = go.Figure()
    placed = [(bar, offsets[compile_id]) for compile_id, band in bands.items() for bar in band]
    for stage, (colour, _) in STAGES.items():
        drawn = [(bar, offset) for bar, offset in placed if stage_of(bar.phase.name) == stage]
        if drawn:
            figure.add_trace(_trace(stage, colour, drawn))
    _label(figure, compiles, bands, offsets)
    _axes(figure, height)
    return figure, sum(map(len, of_compile.values())) - sum(map(len, bands.values()))


def _span(phases: Sequence[CompilePhase]) -> float:
    if not phases:
        return 0.0
    return max(p.start_s + p.duration_s for p in phases) - min(p.start_s for p in phases)


def _offsets(bands: dict[str, list[Bar]]) -> tuple[dict[str, float], float]:
    """First lane of every band, with a gap for its label, and the number of lanes in all."""
    offsets, reached = {}, 0.0
    for compile_id, band in bands.items():
        offsets[compile_id] = reached + 1.2
        reached += 1.6 + max((bar.lane + 1 for bar in band), default=0)
    return offsets, reached


def _trace(stage: str, colour: str, drawn: list[tuple[Bar, float]]) -> go.Bar:
    return go.Bar(
        name=stage,
        orientation="h",
        base=[bar.start_s for bar, _ in drawn],
        x=[bar.phase.duration_s for bar, _ in drawn],
        y=[offset + bar.lane for bar, offset in drawn],
        width=0.92,
        marker={"color": colour, "line": {"width": 0}},
        text=[short(bar.phase.name, 44) for bar, _ in drawn],
        textposition="inside",
        insidetextanchor="start",
        textangle=0,
        insidetextfont={"size": 11, "color": "white" if colour in ("#0072B2", "#D55E00", "#009E73") else "#1E2227"},
        customdata=[[bar.phase.name, seconds(bar.phase.duration_s), seconds(bar.start_s)] for bar, _ in drawn],
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}, from %{customdata[2]}<extra></extra>",
    )


def _label(
    figure: go.Figure, compiles: Sequence[Compile], bands: dict[str, list[Bar]], offsets: dict[str, float]
) -> None:
    for compile in compiles:
        lasted = duration(compile.duration_s * 1e6) if compile.duration_s is not None else "not timed"
        empty = "" if bands[compile.compile_id] else ": no phases recorded"
        figure.add_annotation(
            x=0,
            y=offsets[compile.compile_id] - 0.95,
            xanchor="left",
            showarrow=False,
            text=f"{compile.compile_id}  {short(compile.function or '', 40)}  {lasted}{empty}".replace("<", "‹"),
        )


def _axes(figure: go.Figure, lanes: float) -> None:
    figure.update_xaxes(title="seconds since the compile began", rangemode="tozero", zeroline=False)
    figure.update_yaxes(visible=False, range=[lanes, -0.4], fixedrange=True)
    figure.update_layout(
        barmode="overlay",
        height=int(90 + LANE_PX * lanes),
        margin={"l": 8, "r": 8, "t": 0, "b": 0},
        uniformtext={"mode": "hide", "minsize": 10},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
