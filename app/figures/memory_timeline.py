"""Memory over a plan or a measured step: curves above the lifetimes of blocks, on one axis, and small curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fusionscope.app import style
from fusionscope.app.figures.packing import pack, start_of, stop_of
from fusionscope.storage.queries.blocks import Level, Span
from fusionscope.storage.queries.memory import Point

PEAK = "#D55E00"
CURSOR = "#8C8C8C"
BAND = "small blocks"
HEIGHT = 540
LABELLED = (1 / 100, 1 / 200)  # of width and height: what is smaller could not show its name at eightfold zoom either


@dataclass(frozen=True)
class Overlay:
    """A second curve on the same axis."""

    name: str
    colour: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Picture:
    """All that one picture shows."""

    points: Sequence[Point]
    spans: Sequence[Span]
    band: Sequence[Level]
    peak: Point
    chosen: Point
    axis: str = "order"  # order, time
    axis_title: str = "wrapper step"
    title: str = "the plan"
    lit: str | None = None  # key of the block that is lit
    overlays: Sequence[Overlay] = field(default=())

    def x(self, point: Point) -> float:
        """Where a point stands on the axis."""
        return float(point.step) if self.axis == "order" else point.time_us or 0.0

    @property
    def end(self) -> float:
        """Just beyond the last point."""
        last = self.x(self.points[-1])
        return last + (1.0 if self.axis == "order" else max(last / 100, 1.0))


def timeline_figure(picture: Picture) -> go.Figure:
    """Live bytes above, each drawn block below as a rectangle from its allocation to its end.

    The height of a rectangle is its size; where it stands has no meaning, except that blocks which take over each
    other's memory share a row. What is not drawn one by one is the band at the bottom, as high as their sum.
    """
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.4, 0.6], vertical_spacing=0.08)
    figure.add_trace(_chosen_from(picture), row=1, col=1)
    for overlay in picture.overlays:
        figure.add_trace(_line(overlay, picture.x), row=1, col=1)
    floor = max((level.bytes for level in picture.band), default=0)
    if picture.band:
        figure.add_trace(_band(picture), row=2, col=1)
    offsets = pack(picture.spans, picture.end, floor)
    top = max((offsets[span.key] + span.bytes for span in picture.spans), default=max(floor, 1))
    for category in style.MEMORY_COLOURS:
        inside = [span for span in picture.spans if span.category == category]
        if inside:
            figure.add_trace(_rectangles(category, inside, offsets, picture, top), row=2, col=1)
    every = [*picture.points, *(point for overlay in picture.overlays for point in overlay.points)]
    _byte_axis(figure, max(p.live_bytes for p in every), min(p.live_bytes for p in every), row=1)
    _byte_axis(figure, top, 0, row=2)
    _title(figure, 1, f"{picture.title}: live bytes above the entry of the call")
    _title(figure, 2, "blocks, as high as they are large")
    _mark(figure, picture)
    figure.update_xaxes(range=[picture.x(picture.points[0]), picture.end], showgrid=False, zeroline=False)
    figure.update_xaxes(title_text=picture.axis_title, title_standoff=4, row=2)
    legend = {"y": -0.1, "yanchor": "top", "x": 0, "xanchor": "left"}
    return _framed(figure, HEIGHT).update_layout(legend=legend)


@dataclass(frozen=True)
class Small:
    """A curve on its own x axis: scheduler steps of an estimate, wrapper steps, or the events of a measured call."""

    title: str
    axis_title: str
    colour: str
    points: Sequence[Point]


def small_figure(curves: Sequence[Small]) -> go.Figure:
    """Curves side by side on one scale of bytes, in one figure: a page of several is drawn one after the other."""
    figure = make_subplots(cols=len(curves), shared_yaxes=True, horizontal_spacing=0.03)
    for col, curve in enumerate(curves, start=1):
        points, peak = curve.points, max(curve.points, key=lambda point: point.live_bytes)
        figure.add_trace(_area(points, [*(p.step for p in points), points[-1].step + 1], curve.colour), row=1, col=col)
        figure.add_trace(_peak_mark(peak), row=1, col=col)
        figure.update_xaxes(title_text=curve.axis_title, title_standoff=4, row=1, col=col)
        _title(figure, 1, curve.title, col)
    every = [point.live_bytes for curve in curves for point in curve.points]
    _byte_axis(figure, max(every), min(every))
    figure.update_xaxes(showgrid=False, zeroline=False)
    return _framed(figure, 210)


def _peak_mark(peak: Point) -> go.Scatter:
    marker = {"color": PEAK, "size": 7}
    return go.Scatter(
        x=[peak.step], y=[peak.live_bytes], mode="markers", marker=marker, hoverinfo="skip", showlegend=False
    )


def shares_figure(shares: Sequence[tuple[str, int]]) -> go.Figure:
    """What is alive by category, as one stacked bar; `shares` are bytes by category, most first."""
    figure = go.Figure()
    for category, size in shares:
        figure.add_trace(
            go.Bar(
                orientation="h",
                x=[size],
                y=[""],
                name=category,
                marker={"color": colour_of(category)},
                text=[style.size(size)],
                textposition="inside",
                insidetextanchor="middle",
                insidetextfont={"color": "#111111", "size": 11},
                textangle=0,
                hovertext=[f"{style.plot_text(category)}: {style.size(size)} ({style.number(size)} B)"],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    framed = _framed(figure, 84)
    legend = {"y": 1.02, "x": 0, "xanchor": "left", "traceorder": "normal"}
    return framed.update_layout(barmode="stack", legend=legend, margin={"l": 0, "r": 0, "t": 40, "b": 4})


def colour_of(category: str) -> str:
    """The colour of a category; one that the palette lacks is grey."""
    return style.MEMORY_COLOURS.get(category, style.GREY)


def _area(points: Sequence[Point], x: Sequence[float], colour: str) -> go.Scatter:
    """Live bytes as a filled step line that holds each value until the next step; `x` has the end of the axis too."""
    texts = [
        f"step {p.step}: {style.size(p.live_bytes)} ({style.number(p.live_bytes)} B)<br>"
        f"{style.plot_text(p.label or '', 80)}"
        for p in points
    ]
    return go.Scatter(
        x=x,
        y=[*(p.live_bytes for p in points), points[-1].live_bytes],
        text=[*texts, texts[-1]],
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": colour},
        fill="tozeroy",
        fillcolor=_pale(colour),
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _chosen_from(picture: Picture) -> go.Scatter:
    """The curve with an unseen marker on each point: a line alone has nothing to click or to draw a box over.

    All but one stay out of the page, where they can be chosen none the less.
    """
    points = picture.points
    area = _area(points, [*map(picture.x, points), picture.end], style.MEMORY_COLOURS["intermediate"])
    unseen = {"marker": {"opacity": 0}}
    return area.update(
        mode="lines+markers",
        marker={"size": 8, "opacity": 0, "maxdisplayed": 1},
        selected=unseen,
        unselected=unseen,
        customdata=[p.step for p in (*points, points[-1])],
    )


def _line(overlay: Overlay, x: Callable[[Point], float]) -> go.Scatter:
    return go.Scatter(
        x=[x(point) for point in overlay.points],
        y=[point.live_bytes for point in overlay.points],
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": overlay.colour},
        name=style.plot_text(overlay.name),
        hovertemplate="%{y} B<extra></extra>",
    )


def _band(picture: Picture) -> go.Scatter:
    levels = picture.band
    return go.Scatter(
        x=[*(level.x for level in levels), picture.end],
        y=[*(level.bytes for level in levels), levels[-1].bytes],
        mode="lines",
        line={"shape": "hv", "width": 0.8, "color": style.GREY},
        fill="tozeroy",
        fillcolor=_pale(style.GREY),
        name=BAND,
        hovertemplate=f"{BAND}: %{{y}} B<extra></extra>",
    )


def _rectangles(category: str, spans: Sequence[Span], offsets: dict[str, int], picture: Picture, top: int) -> go.Bar:
    return go.Bar(
        orientation="h",
        base=[start_of(span) for span in spans],
        x=[stop_of(span, picture.end) - start_of(span) for span in spans],
        y=[offsets[span.key] + span.bytes / 2 for span in spans],
        width=[span.bytes for span in spans],
        text=[_label(span, picture, top) for span in spans],
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": "#111111", "size": 11},
        textangle=0,
        customdata=[span.key for span in spans],
        hovertext=[_story(span) for span in spans],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={"color": colour_of(category), "line": _borders(spans, picture.lit, top)},
        name=category,
    )


def _label(span: Span, picture: Picture, top: int) -> str:
    """Name and size; plotly.js measures every text to find out whether it fits, so none where it never would."""
    width, height = (stop_of(span, picture.end) - start_of(span)) / picture.end, span.bytes / top
    fits = width >= LABELLED[0] and height >= LABELLED[1]
    return f"{style.plot_text(span.name, 28)} · {style.size(span.bytes)}" if fits else ""


def _borders(spans: Sequence[Span], lit: str | None, top: int) -> dict[str, list[object]]:
    """None around a sliver, which would be all border; a strong one around the block that is lit."""
    return {
        "width": [3.0 if span.key == lit else 0.6 if span.bytes > top / 80 else 0.0 for span in spans],
        "color": [PEAK if span.key == lit else "rgba(0,0,0,0.35)" for span in spans],
    }


def _story(span: Span) -> str:
    """Hover text: what the block is and how long it lives."""
    begins = "there at entry" if span.first is None else f"from {style.number(span.first)}"
    ends = "outlives the call" if span.last is None else f"to {style.number(span.last)}"
    lines = [
        f"{style.plot_text(span.name, 60)} · {style.size(span.bytes)} ({style.number(span.bytes)} B) · {span.category}",
        style.plot_text(span.label, 80) if span.label and span.label != span.name else "",
        f"{begins} {ends}",
        f"takes over the memory of {style.plot_text(span.reuses)}" if span.reuses else "",
    ]
    return "<br>".join(line for line in lines if line)


def _mark(figure: go.Figure, picture: Picture) -> None:
    """A line through both rows at the peak, a grey one at the chosen step, and the life of the block that is lit."""
    middle = 0.5 if picture.axis == "order" else 0.0
    peak = picture.x(picture.peak) + middle
    figure.add_vline(peak, line={"color": PEAK, "width": 1.5, "dash": "dash"})
    left = peak < picture.end / 2
    figure.add_annotation(
        **{"x": peak, "y": picture.peak.live_bytes, "row": 1, "col": 1, "yanchor": "bottom", "showarrow": False},
        **{"xanchor": "left" if left else "right", "xshift": 5 if left else -5, "font": {"color": PEAK}},
        text=f"peak {style.size(picture.peak.live_bytes)}, step {picture.peak.step}",
    )
    if picture.chosen.step != picture.peak.step:
        figure.add_vline(picture.x(picture.chosen) + middle, line={"color": CURSOR, "width": 1.5, "dash": "dot"})
    lit = next((span for span in picture.spans if span.key == picture.lit), None)
    if lit is not None:
        figure.add_vrect(start_of(lit), stop_of(lit, picture.end), fillcolor=PEAK, opacity=0.12, line_width=0, row=1)


def _title(figure: go.Figure, row: int, text: str, col: int = 1) -> None:
    """A quiet title at the top left of a part of the figure."""
    figure.add_annotation(
        **{"x": 0, "y": 1, "xref": "x domain", "yref": "y domain", "xanchor": "left", "yanchor": "bottom"},
        **{"text": text, "row": row, "col": col, "showarrow": False, "font": {"size": 12}, "opacity": 0.7},
    )


def _byte_axis(figure: go.Figure, most: int, least: int, row: int | None = None) -> None:
    """`least` is below zero where a call frees what was there at its entry."""
    ticks = byte_ticks(most, min(least, 0))
    room = 0.12 * max(most - min(least, 0), 1)
    figure.update_yaxes(
        tickvals=ticks,
        ticktext=[style.size(tick) for tick in ticks],
        range=[least - room if least < 0 else 0, most + room],
        zeroline=least < 0,
        row=row,
        col=None if row is None else 1,
    )


def byte_ticks(most: int, least: int = 0) -> list[int]:
    """Three to seven multiples of a power of two from `least` to `most` bytes."""
    step = 2 ** max(0, math.ceil(math.log2(max(most - least, 1) / 5)))
    return list(range(-(-least // step) * step, most + 1, step))


def _framed(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        height=height,
        margin={"l": 0, "r": 8, "t": 22, "b": 0},
        barmode="overlay",
        bargap=0,
        hovermode="closest",
        hoverdistance=200,  # a click beside the line means the step below it
        uirevision="kept",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    return figure


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.28)"
