"""What an autotuner weighed, as bars of time: the shortest wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from fusionscope.app import style

DRAWN = 24  # bars; the slowest beyond are left out
BAR_PX = 22


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration, template or library call with the time that it took."""

    name: str
    time_us: float
    chosen: bool | None
    kind: str = "triton"  # library, triton, cpp, …
    remark: str = ""


def candidates_figure(candidates: Sequence[Candidate]) -> go.Figure:
    """A bar per candidate, fastest on top; the chosen one is dark, library calls are grey."""
    drawn = sorted(candidates, key=lambda c: c.time_us)[:DRAWN]
    divisor, unit = style.scale(drawn[-1].time_us, style.TIMES, 1000)
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=list(range(len(drawn))),
            x=[c.time_us / divisor for c in drawn],
            width=0.7,
            text=[style.duration(c.time_us) for c in drawn],
            textposition="outside",
            cliponaxis=False,
            marker={"color": [_colour(c) for c in drawn], "line": {"width": 0}},
            hovertext=[f"{style.plot_text(c.name, 120)}<br>{style.duration(c.time_us)} {c.remark}" for c in drawn],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    names = [f"{style.plot_text(c.name, 72)}{'  ✓' if c.chosen else ''}  " for c in drawn]
    figure.update_yaxes(tickvals=list(range(len(drawn))), ticktext=names, autorange="reversed", fixedrange=True)
    figure.update_yaxes(tickfont={"family": "Source Code Pro, monospace", "size": 11}, showgrid=False)
    figure.update_xaxes(title=f"time of one call, {unit}", rangemode="tozero", nticks=5)
    figure.update_layout(height=64 + BAR_PX * len(drawn), margin={"l": 0, "r": 56, "t": 4, "b": 0}, showlegend=False)
    return figure


def _colour(candidate: Candidate) -> str:
    if candidate.chosen:
        return style.GAIN
    return style.KIND_COLOURS["extern"] if candidate.kind == "library" else style.KIND_COLOURS["pointwise"]
