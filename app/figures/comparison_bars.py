"""Measured quantities of each variant as bars from zero, with the interval of the middle 80 % of the samples."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusionscope.app.style import GREY, VARIANT_COLOURS
from fusionscope.app.words import Metric
from fusionscope.storage.records import Measurement

ROW_PX = 40


def variant_bars(measurements: Sequence[Measurement], metric: Metric) -> go.Figure:
    """One bar per measurement of `metric`: its median, which the label tells too, and whiskers from p10 to p90."""
    divisor, unit = metric.scale(max(max(m.median, m.p90 or 0.0) for m in measurements))
    names = [f"{m.variant}  {metric.form(m.median)}" for m in measurements]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            y=names,
            x=[m.median / divisor for m in measurements],
            width=0.55,
            marker_color=[VARIANT_COLOURS.get(m.variant, GREY) for m in measurements],
            customdata=[[m.variant, m.median, metric.unit, interval(m, metric), m.samples] for m in measurements],
            hovertemplate="%{customdata[0]}: %{customdata[1]:,} %{customdata[2]}<br>p10 – p90: %{customdata[3]}<br>"
            "samples: %{customdata[4]}<extra></extra>",
        )
    )
    for name, m in zip(names, measurements, strict=True):
        if m.p10 is not None and m.p90 is not None:
            figure.add_trace(whisker(name, m.p10 / divisor, m.p90 / divisor))
    figure.update_xaxes(title=unit, rangemode="tozero", nticks=5, showgrid=True)
    figure.update_yaxes(autorange="reversed")
    height = 64 + ROW_PX * len(measurements)
    figure.update_layout(height=height, margin={"l": 0, "r": 10, "t": 4, "b": 0}, showlegend=False)
    return figure


def whisker(name: str, low: float, high: float) -> go.Scatter:
    """A line from `low` to `high` over the bar `name`."""
    return go.Scatter(
        x=[low, high],
        y=[name, name],
        mode="lines+markers",
        line={"color": "#E69F00", "width": 2},
        marker={"symbol": "line-ns", "size": 9, "line": {"width": 2, "color": "#E69F00"}},
        hoverinfo="skip",
    )


def interval(measurement: Measurement, metric: Metric) -> str:
    """`p10 – p90` with units; a dash where there is none."""
    if measurement.p10 is None or measurement.p90 is None:
        return metric.form(None)
    return f"{metric.form(measurement.p10)} – {metric.form(measurement.p90)}"
