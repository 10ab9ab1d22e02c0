"""Host against device: whether a call waits for the kernels, or the kernels wait to be launched."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.figures.lanes import launching_figure, timeline_figure
from fusionscope.app.table import table
from fusionscope.storage.queries import compare
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import Measurement, TimelineSpan

TITLES = {
    "latency_us": "one call",
    "host_us": "host issues it in",
    "device_us": "device works",
    "launch_gap_us": "device waits",
}


def medians_of(measurements: Sequence[Measurement]) -> dict[str, dict[str, float]]:
    """Variant -> metric -> median in µs, for the variants whose time on the device was measured; eager first."""
    found: dict[str, dict[str, float]] = {}
    for m in measurements:
        if m.metric in TITLES:
            found.setdefault(m.variant, {})[m.metric] = m.median
    measured = {variant: of for variant, of in found.items() if "device_us" in of}
    return dict(sorted(measured.items(), key=lambda item: (item[0] != "eager", item[0] != "compiled")))


def launch_bound(medians: dict[str, float]) -> bool | None:
    """Whether the host takes longer to issue a call than the device to do its work; None where one is not known."""
    if "host_us" not in medians or "device_us" not in medians:
        return None
    return medians["host_us"] > medians["device_us"]


def sentence(measurements: Sequence[Measurement]) -> str:
    """`compiled is launch-bound: …`, and the variant that helps; empty where nothing was measured on a device."""
    found = medians_of(measurements)
    compiled = found.get("compiled", {})
    if not launch_bound(compiled):
        return ""
    work = _work(found)
    bound = (
        f"Compiled is launch-bound: {work}, but the host needs {style.duration(compiled['host_us'])} to issue a call"
    )
    latency = compiled.get("latency_us")
    faster = [(of["latency_us"], name) for name, of in found.items() if name != "eager" and "latency_us" in of]
    if latency is None or not faster or min(faster)[0] >= latency or min(faster)[1] == "compiled":
        return f"{bound}."
    best, name = min(faster)
    return f"{bound}; {name} brings a call to {style.duration(best)}."


def _work(found: dict[str, dict[str, float]]) -> str:
    """The device's work, beside eager's where that was measured."""
    compiled, eager = found["compiled"]["device_us"], found.get("eager", {}).get("device_us")
    if eager is None:
        return f"the device works {style.duration(compiled)}"
    return f"the device works {style.duration(eager)} in eager and {style.duration(compiled)} compiled"


def strip(run: RunSummary, measurements: Sequence[Measurement], key: str) -> None:
    """Host and device time of every variant as bars and as a table. Draws nothing where no device time is known."""
    found = medians_of(measurements)
    if not found:
        return
    style.section("Host and device", f"launching-{key}")
    left, right = st.columns(2)
    with left:
        st.plotly_chart(launching_figure(found), config=style.PLOT, key=f"launching-{key}")
    with right:
        titles = {metric: title for metric, title in TITLES.items() if any(metric in of for of in found.values())}
        rows = [
            {"variant": variant}
            | {title: of.get(metric) for metric, title in titles.items()}
            | {"": {True: "launch-bound", False: "device-bound", None: None}[launch_bound(of)]}
            for variant, of in found.items()
        ]
        table(rows, dict.fromkeys(TITLES.values(), style.duration), key=f"launching-table-{key}")
        methods = {m.metric: m.method for m in measurements if m.metric in TITLES and m.variant in found}
        how = [f"{title}: {methods[metric]}" for metric, title in TITLES.items() if metric in methods]
        style.note(
            f"launch-bound: issuing a call takes the host longer than the device works. {'; '.join(how)}.",
            f"launching-{key}",
        )


def time_lines(run: RunSummary) -> None:
    """One profiled call of each variant. Draws nothing where none was recorded."""
    spans = data.ask(compare.timeline, run.run_id)
    if not spans:
        return
    style.section("One call in time", "timeline")
    variants = list(dict.fromkeys(span.variant for span in spans))
    default = [variant for variant in ("eager", "compiled") if variant in variants] or variants[:2]
    shown = st.pills("Variants", variants, selection_mode="multi", default=default, key="timeline-variants")
    inside = [span for span in spans if span.variant in (shown or default)]
    st.plotly_chart(timeline_figure(inside), config=style.PLOT, key="timeline")
    lanes = "what the host issued above what the device ran" if _on_device(inside) else "what the host ran"
    style.note(
        f"The step of median length among those profiled, {lanes}: {style.plural(len(inside), 'span')}. The profiler "
        "itself slows the host.",
        "timeline",
    )


def _on_device(spans: Sequence[TimelineSpan]) -> bool:
    return any(span.lane == "device" for span in spans)
