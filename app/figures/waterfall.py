"""From eager to compiled as a waterfall: the largest gains and losses by module or operator, the rest as one bar."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusionscope.app import style
from fusionscope.storage.queries.costs import EVERY, CostRow

TOP = 8
CROP = 0.2  # share of the whole below which the changes would be slivers on an axis from zero
_PLACES = {None: "outside the model", "": "the model's own forward", EVERY: None}


def name_of(row: CostRow) -> str:
    """What a row is about, in the words of the program."""
    module = {None: "outside the model", "": "the model's own forward", EVERY: None}.get(
        row.module_path, row.module_path
    )
    counted = f"{module} × {row.modules}" if module and row.modules > 1 else module
    parts = (row.op and row.op.removeprefix("aten::"), counted, "backward" if row.direction == "backward" else None)
    return " · ".join(str(part) for part in parts if part)


def waterfall(rows: Sequence[CostRow], top: int = TOP) -> go.Figure:
    """Bars from eager's kernel time to compiled's; `rows` come largest change first."""
    eager, compiled = sum(row.eager_us for row in rows), sum(row.compiled_us for row in rows)
    changes = _changes(rows, top)
    levels = [eager, *(eager + sum(us for _, us in changes[: n + 1]) for n in range(len(changes))), compiled]
    divisor, unit = style.scale(max(levels), style.TIMES, 1000)
    bars = [("eager", eager), *changes, ("compiled", compiled)]
    texts = [_label(us, whole=index in (0, len(bars) - 1)) for index, (_, us) in enumerate(bars)]
    places = list(range(len(bars)))
    names = [style.plot_text(name, 44) for name, _ in bars]
    figure = go.Figure(
        go.Waterfall(
            orientation="h",
            measure=["absolute", *["relative"] * len(changes), "total"],
            y=places,
            x=[us / divisor for _, us in bars],
            decreasing_marker_color=style.GAIN,
            increasing_marker_color=style.LOSS,
            totals_marker_color=style.GREY,
            connector={"line": {"width": 1, "color": style.GREY, "dash": "dot"}},
            customdata=[[style.plot_text(name, 200), text] for (name, _), text in zip(bars, texts, strict=True)],
            hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
        )
    )
    ends = [max(pair) / divisor for pair in zip(levels, [0.0, *levels[:-2], 0.0], strict=True)]
    figure.add_scatter(
        x=ends,
        y=places,
        mode="text",
        text=[f" {text}" for text in texts],
        textposition="middle right",
        hoverinfo="skip",
    )
    reach = [begin_of(rows, top) / divisor, max(ends) + 0.16 * (max(ends) - begin_of(rows, top) / divisor)]
    figure.update_xaxes(title=f"{unit} of kernels per call", range=reach, showgrid=True)
    figure.update_yaxes(tickvals=places, ticktext=names, autorange="reversed")
    figure.update_layout(height=70 + 30 * len(bars), margin={"l": 0, "r": 0, "t": 4, "b": 0}, showlegend=False)
    return figure


def begin_of(rows: Sequence[CostRow], top: int = TOP) -> float:
    """Microseconds at which the axis begins: zero, but where every change is small beside the whole."""
    level, lowest = (sum(row.eager_us for row in rows),) * 2
    highest = level
    for _, us in _changes(rows, top):
        level += us
        lowest, highest = min(lowest, level), max(highest, level)
    return max(0.0, lowest - 0.5 * (highest - lowest)) if highest - lowest < CROP * highest else 0.0


def _changes(rows: Sequence[CostRow], top: int) -> list[tuple[str, float]]:
    """The first rows one by one, the rest as one."""
    shown = [(name_of(row), -row.gain_us) for row in rows[:top]]
    rest = rows[top:]
    others = [(style.plural(len(rest), "other row"), -sum(row.gain_us for row in rest))] if rest else []
    return shown + others


def _label(us: float, *, whole: bool) -> str:
    return style.duration(us) if whole else style.signed(style.duration(abs(us)), us)
