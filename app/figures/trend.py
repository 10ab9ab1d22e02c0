"""One metric over the runs of a name, with what changed where it stepped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import plotly.graph_objects as go

from fusionscope.app.style import GREY, VARIANT_COLOURS, plot_text


@dataclass(frozen=True)
class TrendPoint:
    """A run of the trend."""

    run_id: str
    moment: datetime
    value: float
    text: str  # the value in words
    changed: tuple[str, ...]  # what differs from the run before: torch 2.13.0 → 2.14.1, commit 9f2c → 1e7d
    branch: str  # line that it belongs to: its device


def trend_figure(points: Sequence[TrendPoint], title: str) -> go.Figure:
    """Runs in even steps: what matters is their order, not the hours between them."""
    figure = go.Figure()
    places = {point.run_id: place for place, point in enumerate(sorted(points, key=lambda point: point.moment))}
    for number, branch in enumerate(dict.fromkeys(point.branch for point in points)):
        own = [point for point in points if point.branch == branch]
        figure.add_scatter(
            x=[places[point.run_id] for point in own],
            y=[point.value for point in own],
            mode="lines+markers",
            name=plot_text(branch, 30),
            line={"width": 1.5, "color": _COLOURS[number % len(_COLOURS)], "shape": "hv"},
            marker={"size": [9 if point.changed else 5 for point in own]},
            customdata=[point.run_id for point in own],
            hovertext=[_hover(point) for point in own],
            hoverinfo="text",
        )
    figure.update_layout(
        height=240,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        showlegend=len({point.branch for point in points}) > 1,
        xaxis={"title": "runs, the oldest first", "showgrid": False, "tickformat": "d", "zeroline": False},
        yaxis={"title": title, "rangemode": "tozero"},
    )
    return figure


def _hover(point: TrendPoint) -> str:
    lines = [f"{point.moment:%d %b %Y %H:%M} · {point.text}", *point.changed, point.run_id]
    return "<br>".join(plot_text(line, 90) for line in lines)


_COLOURS = (VARIANT_COLOURS["compiled"], "#E69F00", "#56B4E9", "#009E73", "#CC79A7", GREY)
