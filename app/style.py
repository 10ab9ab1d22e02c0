"""Colours, number formats and the few page elements that every screen shares."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from fusionscope.app.screens import TITLES
from fusionscope.storage.queries.runs import RunSummary

# Kinds of work: Okabe and Ito's palette, safe for colour-blind readers, the same on every screen.
KIND_COLOURS = {
    "pointwise": "#56B4E9",
    "reduction": "#E69F00",
    "template": "#009E73",
    "extern": "#8C8C8C",
    "layout": "#D55E00",
    "view": "#D9D9D9",
    "nop": "#D9D9D9",
}
KIND_NAMES = {
    "pointwise": "pointwise",
    "reduction": "reduction",
    "template": "template GEMM",
    "extern": "library call",
    "layout": "layout copy",
    "view": "view",
    "nop": "no work",
}
MEMORY_COLOURS = {
    "weight": "#7F7F7F",
    "constant": "#7F7F7F",
    "input": "#BDBDBD",
    "saved": "#CC79A7",
    "intermediate": "#56B4E9",
    "output": "#009E73",
    "gradient": "#E69F00",
    "optimizer": "#0072B2",
    "workspace": "#F0E442",
    "other": "#A6A6A6",
}
VARIANT_COLOURS = {"eager": "#8C8C8C", "compiled": "#0072B2"}
GAIN, LOSS = "#0072B2", "#D55E00"
GREY = "#8C8C8C"
BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
TIMES = ("µs", "ms", "s")  # from microseconds
PLOT = {"displaylogo": False, "displayModeBar": False}  # config of every plotly chart
MISSING = "—"  # in a table cell; the reason stands beside the table


def number(value: float | None) -> str:
    """Whole numbers whole, others in three significant digits; thousands set apart by a thin space."""
    if value is None:
        return MISSING
    text = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else _three_digits(value)
    return text.replace(",", "\u2009")


def scale(largest: float, units: tuple[str, ...], step: float) -> tuple[float, str]:
    """Divisor and unit that write `largest`, given in the first of `units`, as a number between 1 and `step`."""
    index = 0
    while abs(largest) >= step ** (index + 1) * 0.9995 and index < len(units) - 1:
        index += 1
    return step**index, units[index]


def _scaled(value: float, units: tuple[str, ...], step: float) -> str:
    divisor, unit = scale(value, units, step)
    return f"{number(value / divisor)} {unit}"


def _three_digits(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:.0f}"
    rounded = float(f"{value:.2e}")  # first, so that 0.9999 becomes 1.00 and not 1.000
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{value:.{decimals}f}"


def size(count: float | None) -> str:
    """Bytes as B, KiB, MiB, GiB."""
    return MISSING if count is None else _scaled(count, BYTES, 1024)


def duration(microseconds: float | None) -> str:
    """Microseconds as ns, µs, ms or s."""
    if microseconds is None:
        return MISSING
    if 0 < abs(microseconds) < 1:
        return f"{_three_digits(microseconds * 1000)} ns"
    return _scaled(microseconds, TIMES, 1000)


def seconds(value: float | None) -> str:
    """Seconds as µs, ms or s."""
    return MISSING if value is None else duration(value * 1e6)


def ratio(value: float | None) -> str:
    """A factor, as in 1.34×."""
    return MISSING if value is None else f"{_three_digits(value)}×"


def percent(share: float | None) -> str:
    """A share from 0 to 1 as a percentage."""
    return MISSING if share is None else f"{_three_digits(share * 100)} %"


def signed(text: str, value: float | None) -> str:
    """A delta with its sign: `text` is the formatted magnitude of `value`."""
    if value is None or value == 0:
        return text
    return f"{'+' if value > 0 else '−'}{text.removeprefix('-')}"


def size_change(delta: float | None) -> str:
    """Bytes more (+) or fewer (−)."""
    return signed(size(delta), delta)


def size_delta(before: float | None, after: float | None) -> str:
    """How many bytes more (+) or fewer (−) `after` is."""
    if before is None or after is None:
        return MISSING
    return size_change(after - before)


def change(before: float | None, after: float | None) -> str:
    """Relative change from `before` to `after`, as in −33.2 %."""
    if not before or after is None:
        return MISSING
    return signed(percent((after - before) / before), after - before)


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """`1 kernel`, `3 kernels`."""
    return f"{number(count)} {noun if count == 1 else nouns or noun + 's'}"


def age(moment: datetime) -> str:
    """How long ago a UTC moment without zone was, in its largest unit."""
    passed = max(0.0, (datetime.now(UTC).replace(tzinfo=None) - moment).total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= length:
            return f"{int(passed // length)} {unit} ago"
    return "now"


def short(name: str, n: int = 40) -> str:
    """`name` in at most `n` characters, the middle left out."""
    if len(name) <= n:
        return name
    head = (n - 1) // 2
    return f"{name[:head]}…{name[len(name) - (n - 1 - head) :]}"


def plot_text(name: str, n: int = 40) -> str:
    """`name` shortened for plotly, which reads a little HTML in texts and labels."""
    return html.escape(short(name, n), quote=False)


def plain(text: str, n: int = 40) -> str:
    """`text` for a label that Streamlit reads as Markdown: every character stands for itself."""
    return re.sub(r"([^\w\s])", r"\\\1", short(text, n))


def source_line(file: str | None, line: int | None) -> str:
    """`model.py:42`, without the folders."""
    if file is None:
        return MISSING
    return Path(file).name if line is None else f"{Path(file).name}:{line}"


def gain_colour(good: bool) -> str:
    """Blue for a gain, vermilion for a loss, in the shade that is legible on the theme in use."""
    dark = st.context.theme.type == "dark"
    return ("#7CC4EE" if dark else GAIN) if good else ("#F0894A" if dark else LOSS)


def about(run: RunSummary) -> str:
    """What a screen's heading says of its run."""
    torch = run.torch_version and f"torch {run.torch_version}"
    return " · ".join(filter(None, (run.name, run.device, torch, run.mode and f"mode {run.mode}", run.run_id)))


def right(titles: Iterable[str]) -> dict[str, Any]:
    """Column config that aligns written figures to the right: every title but the first."""
    return {title: st.column_config.TextColumn(alignment="right") for title in list(titles)[1:]}


def heading(title: str, about: str = "") -> None:
    """Title row of a screen: what it is, and in grey what it is about. `about` is data, shown as plain text."""
    with st.container(key="heading", horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text(title)
        if about:
            st.text(about)


def sentence(text: str) -> None:
    """The answer that a screen opens on, as plain text."""
    with st.container(key="sentence"):
        st.text(text)


def section(title: str, key: str) -> None:
    """Heading of a part of a screen; `key` is unique on the page."""
    with st.container(key=f"section-{key}"):
        st.text(title)


def note(text: str, key: str) -> None:
    """One grey line under a picture or table: what it shows and how it was measured."""
    with st.container(key=f"note-{key}"):
        st.text(text)


def not_recorded(reason: str, key: str = "missing") -> None:
    """The grey line that stands where there is nothing to show."""
    note(f"not recorded: {reason}", key)


def notice(text: str, key: str = "notice") -> None:
    """A sentence that must not be overlooked, as plain text in a box."""
    with st.container(key=f"notice-{key}", border=True):
        st.text(text)


def empty_library() -> None:
    """What to do when there is no run yet: the one command that makes one, with a copy button."""
    sentence("No runs yet. This command records one:")
    st.code("fusionscope record mlp_parameters", language="bash", width=420)
    note("It compiles a small model, records what the compiler decided and measures it against eager.", "empty")


def brand() -> None:
    """The name of the program, at the top of the sidebar."""
    with st.container(key="brand"):
        st.text("Fusionscope")


@st.fragment
def tabs(sides: Mapping[str, Callable[[], None]], key: str) -> None:
    """A tab per title and what draws it. Only the open one is made: the browser would draw what the others hold too."""
    for tab, draw in zip(st.tabs(list(sides), key=key, on_change="rerun"), sides.values(), strict=True):
        if tab.open:
            with tab:
                draw()


def door(label: str, screen: str, run_id: str, **params: str) -> None:
    """A link to another screen of the same run. `label` is the app's own words: it is Markdown."""
    st.page_link(f"screens/{screen}.py", label=label, query_params={"run": run_id, **params})


def figure(label: str, value: str, remark: str, screen: str, run_id: str) -> None:
    """A headline number that leads to the screen which explains it. Place several in a horizontal container."""
    with st.container(key=f"figure-{label}", border=True, width="stretch"):
        st.text(label)
        st.text(value)
        st.text(remark)
        door(TITLES[screen], screen, run_id)
