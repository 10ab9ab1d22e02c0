"""One metric over the runs of a name, with what changed where it stepped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from fusionscope.app.style import GREY, VARIANT_COLOURS, plot_text

LABELS = 12  # along the axis


@dataclass(frozen=True)
class TrendPoint:
    """A run of the trend."""

    run_id: str
    moment: datetime
    value: float
    interval: tuple[float, float]  # of its samples; the value itself where there is one sample
    text: str  # the value in words
    changed: tuple[str, ...]  # what differs from the run before: torch 2.13.0 → 2.14.1, commit 9f2c → 1e7d
    label: str  # under the axis: the version or commit that is new here
    branch: str  # line that it belongs to: its device


def trend_figure(points: Sequence[TrendPoint], title: str) -> go.Figure:
    """`points` in order of time, in even steps: what matters is their order, not the hours between them."""
    figure = go.Figure()
    for number, branch in enumerate(dict.fromkeys(point.branch for point in points)):
        own = [(place, point) for place, point in enumerate(points) if point.branch == branch]
        figure.add_scatter(
            x=[place for place, _ in own],
            y=[point.value for _, point in own],
            error_y=_error_bars([point for _, point in own]),
            mode="lines+markers",
            name=plot_text(branch, 30),
            line={"width": 1.5, "color": _COLOURS[number % len(_COLOURS)], "shape": "hv"},
            marker={"size": [9 if point.changed else 5 for _, point in own]},
            hovertext=[_hover(point) for _, point in own],
            hoverinfo="text",
        )
    figure.update_layout(
        height=260,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        showlegend=len({point.branch for point in points}) > 1,
        xaxis=_axis(points),
        yaxis={"title": title, "rangemode": "tozero"},
    )
    return figure


def _error_bars(points: Sequence[TrendPoint]) -> dict[str, object]:
    return {
        "array": [point.interval[1] - point.value for point in points],
        "arrayminus": [point.value - point.interval[0] for point in points],
        "thickness": 1,
        "width": 0,
        "visible": any(low < high for low, high in (point.interval for point in points)),
    }


def _axis(points: Sequence[TrendPoint]) -> dict[str, object]:
    """Runs, the oldest first, with the versions and commits under those that brought them, as far as there is room."""
    labelled = [(place, point.label) for place, point in enumerate(points) if point.label]
    kept = labelled[:: -(-len(labelled) // LABELS) or 1]
    return {
        "title": "runs, the oldest first",
        "showgrid": False,
        "zeroline": False,
        "tickvals": [place for place, _ in kept],
        "ticktext": [plot_text(label, 16) for _, label in kept],
        "tickangle": 0,
    }


def _hover(point: TrendPoint) -> str:
    lines = [f"{point.moment:%d %b %Y %H:%M} · {point.text}", *point.changed, point.run_id]
    return "<br>".join(plot_text(line, 90) for line in lines)


_COLOURS = (VARIANT_COLOURS["compiled"], "#E69F00", "#56B4E9", "#009E73", "#CC79A7", GREY)
