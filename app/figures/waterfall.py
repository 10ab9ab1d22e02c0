"""From eager to compiled as a waterfall: the largest gains and losses by module or operator, the rest as one bar."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import plotly.graph_objects as go

from fusionscope.app import style
from fusionscope.storage.queries.costs import EVERY, CostRow

TOP = 8
MARGIN = 0.25  # of the axis, for the labels
CROP = 0.2  # share of the whole below which the changes would be slivers on an axis from zero
_PLACES = {None: "in no module", "": "the model's own forward", EVERY: None}


def name_of(row: CostRow) -> str:
    """What a row is about, in the words of the program."""
    module = _PLACES.get(row.module_path, row.module_path)
    counted = f"{module} × {row.modules}" if module and row.modules > 1 else module
    parts = (row.op and row.op.removeprefix("aten::"), counted, "backward" if row.direction == "backward" else None)
    return " · ".join(str(part) for part in parts if part)


def waterfall(rows: Sequence[CostRow], top: int = TOP) -> go.Figure:
    """Bars from eager's kernel time to compiled's; `rows` come largest change first."""
    levels = _levels(rows, top)
    divisor, unit = style.scale(max(levels), style.TIMES, 1000)
    bars = [("eager", levels[0]), *_changes(rows, top), ("compiled", levels[-1])]
    texts = [_label(us, whole=place in (0, len(bars) - 1)) for place, (_, us) in enumerate(bars)]
    figure = go.Figure([_bars(bars, texts, divisor), _labels(levels, texts, divisor)])
    begin, most = begin_of(rows, top) / divisor, max(levels) / divisor
    figure.update_xaxes(
        title=f"{unit} of kernels per call", range=[begin, most + MARGIN * (most - begin)], showgrid=True
    )
    names = [style.plot_text(name, 44) for name, _ in bars]
    figure.update_yaxes(tickvals=list(range(len(bars))), ticktext=names, autorange="reversed")
    figure.update_layout(height=70 + 30 * len(bars), margin={"l": 0, "r": 0, "t": 4, "b": 0}, showlegend=False)
    return figure


def begin_of(rows: Sequence[CostRow], top: int = TOP) -> float:
    """Microseconds at which the axis begins: zero, but where every change is small beside the whole."""
    lowest, highest = min(_levels(rows, top)), max(_levels(rows, top))
    return max(0.0, lowest - 0.5 * (highest - lowest)) if highest - lowest < CROP * highest else 0.0


def _levels(rows: Sequence[CostRow], top: int) -> list[float]:
    """Microseconds after each bar: eager's total, then that after every change, then compiled's."""
    changes = (us for _, us in _changes(rows, top))
    return [*accumulate(changes, initial=sum(row.eager_us for row in rows)), sum(row.compiled_us for row in rows)]


def _bars(bars: Sequence[tuple[str, float]], texts: Sequence[str], divisor: float) -> go.Waterfall:
    return go.Waterfall(
        orientation="h",
        measure=["absolute", *["relative"] * (len(bars) - 2), "total"],
        y=list(range(len(bars))),
        x=[us / divisor for _, us in bars],
        decreasing_marker_color=style.GAIN,
        increasing_marker_color=style.LOSS,
        totals_marker_color=style.GREY,
        connector={"line": {"width": 1, "color": style.GREY, "dash": "dot"}},
        customdata=[[style.plot_text(name, 200), text] for (name, _), text in zip(bars, texts, strict=True)],
        hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
    )


def _labels(levels: Sequence[float], texts: Sequence[str], divisor: float) -> go.Scatter:
    """The texts, each to the right of its bar, which reaches from one level to the next."""
    ends = [levels[0], *(max(pair) for pair in pairwise(levels[:-1])), levels[-1]]
    return go.Scatter(
        x=[end / divisor for end in ends],
        y=list(range(len(ends))),
        mode="text",
        text=[f" {text}" for text in texts],
        textposition="middle right",
        hoverinfo="skip",
    )


def _changes(rows: Sequence[CostRow], top: int) -> list[tuple[str, float]]:
    """The first rows one by one, the rest as one."""
    shown = [(name_of(row), -row.gain_us) for row in rows[:top]]
    rest = rows[top:]
    others = [(style.plural(len(rest), "other row"), -sum(row.gain_us for row in rest))] if rest else []
    return shown + others


def _label(us: float, *, whole: bool) -> str:
    return style.duration(us) if whole else style.signed(style.duration(abs(us)), us)
