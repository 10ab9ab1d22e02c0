"""Kernels as points: time against the roofline where both are known, against bytes, or registers against weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from fusionscope.app import style
from fusionscope.storage.queries.rooflines import Judged
from fusionscope.storage.roofline import Yardstick

HEIGHT = 380
MOST_REGISTERS = 255  # of a thread, on every NVIDIA GPU
BANDWIDTHS = (1.0, 10.0, 100.0, 1000.0, 10000.0)  # GB/s, drawn as lines where no rate of the device is recorded
SYMBOLS = {"memory": "circle", "operations": "diamond"}
Value = Callable[[Judged], float]


def against_roofline(kernels: Sequence[Judged], yardstick: Yardstick, maker_gbps: float) -> go.Figure:
    """Measured µs of a call over its lower bound, both logarithmic: on the line a kernel is as fast as can be.

    A second line is the lower bound by the bandwidth that was measured, where it was.
    """
    drawn = [k for k in kernels if k.bound and k.row.call_us]
    figure = _points(drawn, lambda k: k.bound.us if k.bound else 0.0, lambda k: k.row.call_us or 0.0)
    bounds = [k.bound.us for k in drawn if k.bound]
    low, high = _reach(bounds)
    _line(figure, low, high, 1.0, "as fast as the lower bound")
    if yardstick.measured:
        _line(figure, low, high, maker_gbps / yardstick.rate, "at the bandwidth of a copy", dash="dash")
    _time_axis(figure.update_xaxes, "lower bound of a call", low, high)
    _time_axis(figure.update_yaxes, "measured time of a call", *_reach([k.row.call_us or 0.0 for k in drawn]))
    return _framed(figure)


def against_bytes(kernels: Sequence[Judged]) -> go.Figure:
    """Measured µs of a call over the bytes that it moves, both logarithmic, with lines of equal bandwidth."""
    drawn = [k for k in kernels if k.row.moved and k.row.call_us]
    figure = _points(drawn, lambda k: float(k.row.moved or 0), lambda k: k.row.call_us or 0.0)
    low, high = _reach([float(k.row.moved or 0) for k in drawn])
    fast, slow = max(k.gbps or 0.0 for k in drawn), min(k.gbps or 0.0 for k in drawn)
    for gbps in BANDWIDTHS:
        if slow / 10 <= gbps <= fast * 10:
            _line(figure, low, high, 1 / (gbps * 1e3), f"{style.number(gbps)} GB/s", legend=False)
            _label(figure, high, high / (gbps * 1e3), f"{style.number(gbps)} GB/s")
    figure.update_xaxes(
        type="log", title="bytes that a call moves", range=_decades(low, high), **_byte_ticks(low, high)
    )
    _time_axis(figure.update_yaxes, "measured time of a call", *_reach([k.row.call_us or 0.0 for k in drawn]))
    return _framed(figure)


def against_registers(kernels: Sequence[Judged]) -> go.Figure:
    """Registers of a thread over the lower bound of all calls: top right is a fat kernel that weighs much."""
    drawn = [k for k in kernels if k.least_us and k.row.registers is not None]
    figure = _points(drawn, lambda k: k.least_us or 0.0, lambda k: float(k.row.registers or 0))
    figure.add_hline(MOST_REGISTERS, line={"color": style.LOSS, "width": 1, "dash": "dot"})
    _time_axis(figure.update_xaxes, "lower bound of all calls", *_reach([k.least_us or 0.0 for k in drawn]))
    figure.update_yaxes(
        title="registers of a thread", range=[0, 275], tickvals=[0, 32, 64, 128, 168, 255], zeroline=False
    )
    return _framed(figure)


def _points(kernels: Sequence[Judged], x: Value, y: Value) -> go.Figure:
    """A trace per kind of work; a kernel that spills has a vermilion rim, a larger point takes more of the time."""
    figure = go.Figure()
    heaviest = max((k.weight_us or 0.0 for k in kernels), default=0.0) or 1.0
    for kind in style.KIND_COLOURS:
        inside = [k for k in kernels if (k.row.kind or "pointwise") == kind]
        if inside:
            figure.add_scatter(
                x=[x(k) for k in inside],
                y=[y(k) for k in inside],
                mode="markers",
                name=style.KIND_NAMES[kind],
                text=[_story(k) for k in inside],
                hovertemplate="%{text}<extra></extra>",
                marker={
                    "color": style.KIND_COLOURS[kind],
                    "size": [8 + 20 * math.sqrt((k.weight_us or 0.0) / heaviest) for k in inside],
                    "symbol": [SYMBOLS.get(k.bound.by if k.bound else "", "circle") for k in inside],
                    "opacity": 0.85,
                    "line": {
                        "color": [style.LOSS if k.row.spill_bytes else "rgba(0,0,0,0.35)" for k in inside],
                        "width": [3 if k.row.spill_bytes else 0.6 for k in inside],
                    },
                },
            )
    return figure


def _story(kernel: Judged) -> str:
    row = kernel.row
    facts = [
        style.plot_text(row.name, 60),
        f"{style.plural(row.calls, 'call')}, {style.size(row.moved)} each",
        f"one call {style.duration(row.call_us)}" if row.call_us else "",
        f"at least {style.duration(kernel.bound.us)}, bound by {kernel.bound.by}" if kernel.bound else "",
        f"{style.number(row.registers)} registers, occupancy {style.percent(row.occupancy)}" if row.registers else "",
        f"spills {style.size(row.spill_bytes)} a thread" if row.spill_bytes else "",
    ]
    return "<br>".join(filter(None, facts))


def _line(
    figure: go.Figure, low: float, high: float, slope: float, name: str, *, dash: str = "dot", legend: bool = True
) -> None:
    """y = slope · x."""
    figure.add_scatter(
        x=[low, high],
        y=[low * slope, high * slope],
        mode="lines",
        name=name,
        line={"color": style.GREY, "width": 1, "dash": dash},
        hoverinfo="skip",
        showlegend=legend,
    )


def _label(figure: go.Figure, x: float, y: float, text: str) -> None:
    """A text that ends above a point of two logarithmic axes."""
    figure.add_annotation(
        x=math.log10(x),
        y=math.log10(y),
        text=text,
        showarrow=False,
        xanchor="right",
        yanchor="bottom",
        font={"size": 11, "color": style.GREY},
    )


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """The least and largest value with half a decade of room on either side."""
    known = sorted(value for value in values if value > 0) or [1.0]
    return known[0] / 3, known[-1] * 3


def _decades(low: float, high: float) -> list[float]:
    return [math.log10(low), math.log10(high)]


def _time_axis(update: Callable[..., object], title: str, low: float, high: float) -> None:
    steps = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [tick for power in decades for step in steps if low <= (tick := step * 10.0**power) <= high]
    texts = [style.duration(tick) for tick in ticks]
    update(type="log", title=title, range=_decades(low, high), tickvals=ticks, ticktext=texts)


def _byte_ticks(low: float, high: float) -> dict[str, list[object]]:
    ticks = [float(1024**power * step) for power in range(4) for step in (1, 32)]
    inside = [tick for tick in ticks if low <= tick <= high]
    return {"tickvals": list(inside), "ticktext": [style.size(tick) for tick in inside]}


def _framed(figure: go.Figure) -> go.Figure:
    figure.update_layout(
        height=HEIGHT,
        margin={"l": 0, "r": 8, "t": 24, "b": 0},
        hovermode="closest",
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "itemsizing": "constant"},
        showlegend=True,
    )
    return figure
