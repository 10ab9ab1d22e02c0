"""Host and device time: how long each is at work in a call of every variant, and a profiled call as two lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusionscope.app import style
from fusionscope.storage.records import TimelineSpan

BAR_PX, LANE_PX = 46, 30
HOST, DEVICE, CALL = "#E69F00", style.GAIN, "#1E2227"
QUANTITIES = (("host_us", "host issues", HOST), ("device_us", "device works", DEVICE))


def launching_figure(medians: Mapping[str, Mapping[str, float]]) -> go.Figure:
    """Per variant the µs that the host needs to issue a call above those that the device works; a tick: the latency.

    `medians` is variant -> metric -> median in µs.
    """
    divisor, unit = style.scale(max(v for of in medians.values() for v in of.values()), style.TIMES, 1000)
    figure = go.Figure()
    for metric, name, colour in QUANTITIES:
        known = [variant for variant in medians if metric in medians[variant]]
        figure.add_bar(
            orientation="h",
            name=name,
            y=known,
            x=[medians[variant][metric] / divisor for variant in known],
            marker={"color": colour, "line": {"width": 0}},
            text=[style.duration(medians[variant][metric]) for variant in known],
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            textfont={"size": 11},
            constraintext="none",
            hovertemplate=f"%{{y}}, {name}: %{{text}}<extra></extra>",
        )
    called = [variant for variant in medians if "latency_us" in medians[variant]]
    figure.add_scatter(
        x=[medians[variant]["latency_us"] / divisor for variant in called],
        y=called,
        mode="markers",
        name="one call",
        marker={"symbol": "line-ns", "size": 26, "line": {"width": 2.5, "color": style.LOSS}},
        text=[style.duration(medians[variant]["latency_us"]) for variant in called],
        hovertemplate="%{y}, one call: %{text}<extra></extra>",
    )
    figure.update_yaxes(autorange="reversed", fixedrange=True, ticksuffix="  ")
    figure.update_xaxes(title=unit, rangemode="tozero", nticks=6)
    figure.update_layout(
        barmode="group",
        bargap=0.25,
        bargroupgap=0.06,
        height=90 + BAR_PX * len(medians),
        margin={"l": 0, "r": 16, "t": 24, "b": 0},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
    )
    return figure


def timeline_figure(spans: Sequence[TimelineSpan]) -> go.Figure:
    """One profiled call: what the host issued above what the device ran, a pair of lanes per variant, in µs."""
    lanes = list(dict.fromkeys((span.variant, span.lane) for span in sorted(spans, key=_place)))
    divisor, unit = style.scale(max(span.end_us for span in spans), style.TIMES, 1000)
    figure = go.Figure()
    for lane, colour in (("host", HOST), ("device", DEVICE)):
        inside = [span for span in spans if span.lane == lane]
        if inside:
            figure.add_bar(
                orientation="h",
                name=lane,
                base=[span.start_us / divisor for span in inside],
                x=[(span.end_us - span.start_us) / divisor for span in inside],
                y=[_title(span.variant, span.lane) for span in inside],
                width=0.8,
                marker={"color": colour, "line": {"color": "rgba(128,128,128,0.5)", "width": 0.5}},
                hovertext=[_story(span) for span in inside],
                hovertemplate="%{hovertext}<extra></extra>",
            )
    order = [_title(*lane) for lane in lanes]
    figure.update_yaxes(categoryorder="array", categoryarray=order, range=[len(order) - 0.5, -0.5], fixedrange=True)
    figure.update_xaxes(title=f"since the call began, {unit}", rangemode="tozero", zeroline=False)
    figure.update_layout(
        barmode="overlay",
        height=80 + LANE_PX * len(order),
        margin={"l": 0, "r": 8, "t": 24, "b": 0},
        hovermode="closest",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        showlegend=True,
    )
    return figure


def _place(span: TimelineSpan) -> tuple[bool, str, bool]:
    """Eager first, the host above the device."""
    return span.variant != "eager", span.variant, span.lane != "host"


def _title(variant: str, lane: str) -> str:
    return f"{style.plot_text(variant, 30)}, {lane}  "


def _story(span: TimelineSpan) -> str:
    took = f"{style.duration(span.end_us - span.start_us)}, from {style.duration(span.start_us)}"
    by = f"<br>issued by {style.plot_text(span.op, 60)}" if span.op and span.lane == "device" else ""
    return f"{style.plot_text(span.name, 80)}<br>{took}{by}"
