"""Memory over time: a plan as a step area above the lifetimes of its buffers, and curves with an axis of their own."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fusionscope.app import style
from fusionscope.storage.queries.memory import Lifetime, Point

DRAWN = 1500  # rectangles; the largest are kept, a browser gets slow beyond
PEAK = "#D55E00"
CURSOR = "#8C8C8C"


def plan_figure(points: Sequence[Point], lifetimes: Sequence[Lifetime], peak: int, step: int) -> go.Figure:
    """The plan's live bytes after each wrapper step, and each buffer as a rectangle from allocation to release.

    Both share the x axis. The height of a rectangle is its size; where it stands has no meaning.
    """
    end = points[-1].step + 1
    figure = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.4, 0.6], vertical_spacing=0.09)
    figure.add_trace(_area(points, end, style.MEMORY_COLOURS["intermediate"]), row=1, col=1)
    drawn = sorted(_planned(lifetimes), key=lambda life: -(life.bytes or 0))[:DRAWN]
    offsets = pack(drawn, end)
    top = max((offsets[life.buffer] + (life.bytes or 0) for life in drawn), default=1)
    for category in style.MEMORY_COLOURS:
        inside = [life for life in drawn if life.category == category]
        if inside:
            figure.add_trace(_rectangles(category, inside, offsets, end, top), row=2, col=1)
    _byte_axis(figure, max(point.live_bytes for point in points), min(point.live_bytes for point in points), row=1)
    _byte_axis(figure, top, 0, row=2)
    for row, title in ((1, "live bytes after each step"), (2, "buffers, as high as they are large")):
        _title(figure, row, title)
    _mark(figure, points, peak, step)
    figure.update_xaxes(range=[points[0].step, end], showgrid=False, zeroline=False)
    figure.update_xaxes(title_text="wrapper step", title_standoff=6, row=2)
    return _framed(figure, 460)


def curve_figure(points: Sequence[Point], x_title: str, colour: str, most: int) -> go.Figure:
    """One curve on its own x axis: scheduler steps of an estimate, or the events of a measured call.

    `most` is the top of the y axis in bytes, the same for curves that stand side by side.
    """
    figure = go.Figure(_area(points, points[-1].step + 1, colour))
    peak = max(points, key=lambda point: point.live_bytes)
    figure.add_trace(
        go.Scatter(
            x=[peak.step],
            y=[peak.live_bytes],
            mode="markers",
            marker={"color": PEAK, "size": 7},
            hoverinfo="skip",
            showlegend=False,
        )
    )
    _byte_axis(figure, most, min(point.live_bytes for point in points))
    figure.update_xaxes(title_text=x_title, title_standoff=4, showgrid=False, zeroline=False)
    return _framed(figure, 210)


def pack(lifetimes: Sequence[Lifetime], end: int) -> dict[str, int]:
    """An offset for each buffer so that no two overlap: the largest area goes lowest, first fit.

    Buffers that take over each other's memory stand in one row.
    """
    chains = _chains(lifetimes)
    spans = {root: (min(_start(b) for b in chain), max(_stop(b, end) for b in chain)) for root, chain in chains.items()}
    heights = {root: max(b.bytes or 0 for b in chain) for root, chain in chains.items()}
    placed: list[tuple[int, int, int, int]] = []  # start, stop, bottom, top
    offsets: dict[str, int] = {}
    for root in sorted(
        chains, key=lambda root: (-heights[root] * (spans[root][1] - spans[root][0]), spans[root], root)
    ):
        start, stop = spans[root]
        bottom = _lowest([(lo, hi) for begin, until, lo, hi in placed if begin < stop and start < until], heights[root])
        placed.append((start, stop, bottom, bottom + heights[root]))
        offsets |= {b.buffer: bottom for b in chains[root]}
    return offsets


def _lowest(taken: list[tuple[int, int]], height: int) -> int:
    """The lowest gap between taken intervals that holds `height`."""
    bottom = 0
    for low, high in sorted(taken):
        if low - bottom >= height:
            break
        bottom = max(bottom, high)
    return bottom


def _chains(lifetimes: Sequence[Lifetime]) -> dict[str, list[Lifetime]]:
    """Buffers by the one whose memory they ended up with."""
    known = {life.buffer: life for life in lifetimes}
    chains: dict[str, list[Lifetime]] = {}
    for life in lifetimes:
        root = life
        while root.reuses in known and known[root.reuses] is not life:
            root = known[root.reuses]
        chains.setdefault(root.buffer, []).append(life)
    return chains


def _planned(lifetimes: Sequence[Lifetime]) -> list[Lifetime]:
    """Buffers that the call allocates or frees. The inputs and weights that it leaves alone would fill the picture."""
    return [life for life in lifetimes if life.bytes and not (life.at_entry and life.freed_at is None)]


def _start(life: Lifetime) -> int:
    return life.allocated_at or 0


def _stop(life: Lifetime, end: int) -> int:
    return end if life.freed_at is None else max(life.freed_at, _start(life) + 1)


def _area(points: Sequence[Point], end: int, colour: str) -> go.Scatter:
    """Live bytes as a filled step line that holds each value until the next step."""
    steps = [point.step for point in points] + [end]
    values = [point.live_bytes for point in points]
    texts = [
        f"step {p.step}: {style.size(p.live_bytes)} ({style.number(p.live_bytes)} B)<br>{_safe(p.label)}"
        for p in points
    ]
    return go.Scatter(
        x=steps,
        y=[*values, values[-1]],
        customdata=[[step] for step in (*steps[:-1], steps[-2])],
        text=[*texts, texts[-1]],
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": colour},
        fill="tozeroy",
        fillcolor=_pale(colour),
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )


def _rectangles(category: str, lives: Sequence[Lifetime], offsets: dict[str, int], end: int, top: int) -> go.Bar:
    colour = style.MEMORY_COLOURS[category]
    heights = [life.bytes or 0 for life in lives]
    return go.Bar(
        orientation="h",
        base=[_start(life) for life in lives],
        x=[_stop(life, end) - _start(life) for life in lives],
        y=[offsets[life.buffer] + height / 2 for life, height in zip(lives, heights, strict=True)],
        width=heights,
        text=[f"{life.buffer} · {style.size(life.bytes)}" for life in lives],
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": "#111111", "size": 11},
        textangle=0,
        customdata=[[_start(life)] for life in lives],
        hovertext=[_story(life) for life in lives],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={"color": colour, "line": {"color": "rgba(0,0,0,0.35)", "width": _borders(heights, top)}},
        name=category,
    )


def _borders(heights: Sequence[int], top: int) -> list[float]:
    """Width of each border: none around a sliver, which would be all border."""
    return [0.6 if height > top / 80 else 0.0 for height in heights]


def _story(life: Lifetime) -> str:
    """Hover text: what the buffer is and how long it lives."""
    until = "outlives the call" if life.freed_at is None else f"freed at step {life.freed_at}"
    lines = [
        f"{life.buffer} · {style.size(life.bytes)} · {life.category}",
        f"holds {life.ops[0]}" if life.ops else "",
        life.kernel or "",
        f"{style.source_line(life.file, life.line)} {(life.source_text or '').strip()}" if life.file else "",
        ("there at entry" if life.at_entry else f"allocated at step {life.allocated_at}")
        + f", last used at {style.number(life.last_use)}, {until}",
        f"takes over the memory of {life.reuses}" if life.reuses else "",
    ]
    return "<br>".join(_safe(line) for line in lines if line)


def _mark(figure: go.Figure, points: Sequence[Point], peak: int, step: int) -> None:
    """A line through both rows at the peak, and a grey one at the chosen step."""
    most = next(point.live_bytes for point in points if point.step == peak)
    figure.add_vline(peak + 0.5, line={"color": PEAK, "width": 1.5, "dash": "dash"})
    middle = (points[0].step + points[-1].step) / 2
    side, shift = ("left", 5) if peak < middle else ("right", -5)
    figure.add_annotation(
        **{"x": peak + 0.5, "y": most, "row": 1, "col": 1, "xanchor": side, "yanchor": "bottom", "xshift": shift},
        **{"text": f"peak {style.size(most)}, step {peak}", "showarrow": False, "font": {"color": PEAK}},
    )
    if step != peak:
        figure.add_vline(step + 0.5, line={"color": CURSOR, "width": 1.5, "dash": "dot"})


def _title(figure: go.Figure, row: int, text: str) -> None:
    """A quiet title at the top left of a row."""
    figure.add_annotation(
        **{"x": 0, "y": 1, "xref": "x domain", "yref": "y domain", "xanchor": "left", "yanchor": "bottom"},
        **{"text": text, "row": row, "col": 1, "showarrow": False, "font": {"size": 12}, "opacity": 0.7},
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
        uirevision="kept",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        uniformtext={"minsize": 9, "mode": "hide"},
    )
    return figure


def _safe(text: str | None) -> str:
    """Text of a model for plotly, which reads a small HTML."""
    return html.escape(style.short(text or "", 80))


def _pale(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.28)"
