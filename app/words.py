"""The sentences that screens open on: numbers of a run in plain words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusionscope.app import style
from fusionscope.storage.queries.runs import RunSummary
from fusionscope.storage.records import Compile, Measurement

SAME = 0.1  # a difference below this share is none that a sentence tells
UNITS: dict[str, tuple[tuple[str, ...], float, Callable[[float | None], str]]] = {
    "us": (style.TIMES, 1000, style.duration),
    "s": (("s",), 1, style.seconds),
    "bytes": (style.BYTES, 1024, style.size),
    "share": (("",), 1, style.percent),
    "1": (("",), 1, lambda value: style.MISSING if value is None else f"{value:.3g}"),
}


@dataclass(frozen=True)
class Metric:
    """How a measured quantity is named, written and drawn; `unit` is that in which it is stored."""

    title: str
    unit: str
    pictured: bool = False
    of_eager: bool = True  # False: a comparison with eager, which eager itself has not

    def form(self, value: float | None) -> str:
        """`value` in three digits with its unit."""
        return UNITS[self.unit][2](value) if self.unit in UNITS else style.number(value)

    def scale(self, largest: float) -> tuple[float, str]:
        """Divisor and unit for an axis that reaches `largest`."""
        units, step, _ = UNITS.get(self.unit, ((self.title.lower(),), 1, style.number))
        return style.scale(largest, units, step)


METRICS = {
    "latency_us": Metric("Latency of one call", "us", pictured=True),
    "wall_s": Metric("Wall time of the program", "s", pictured=True),
    "kernels": Metric("Kernels per call", "count", pictured=True),
    "peak_bytes": Metric("Peak memory above entry", "bytes", pictured=True),
    "peak_rss_bytes": Metric("Peak resident memory of the process", "bytes", pictured=True),
    "bytes_moved": Metric("Bytes moved by a call", "bytes"),
    "base_bytes": Metric("Alive before the call", "bytes"),
    "reserved_bytes": Metric("Reserved by the allocator", "bytes"),
    "graph_pool_bytes": Metric("Reserved for CUDA graphs", "bytes"),
    "host_us": Metric("Host time to issue a call", "us"),
    "device_us": Metric("Kernel time on the device", "us"),
    "launch_gap_us": Metric("Device idle between kernels", "us"),
    "profiled_us": Metric("One call under the profiler", "us"),
    "first_call_s": Metric("First call, compiling included", "s"),
    "break_even_calls": Metric("Calls until compiling pays", "count", of_eager=False),
    "max_abs_error": Metric("Largest difference from eager", "1", of_eager=False),
    "max_rel_error": Metric("Largest relative difference from eager", "1", of_eager=False),
    "beyond_tolerance": Metric("Elements beyond the tolerance", "share", of_eager=False),
}


def metric_of(name: str, unit: str) -> Metric:
    """The known metric `name`, or one made of its own name and unit."""
    return METRICS.get(name) or Metric(name, unit)


def arrow(before: float | None, after: float | None, form: Callable[[float | None], str], between: str = " → ") -> str:
    """`12 → 5`, a common unit written once; empty where neither is known."""
    if before is None and after is None:
        return ""
    left, right = form(before), form(after)
    unit = right.rpartition(" ")[2]
    return f"{left.removesuffix(f' {unit}') if ' ' in right else left}{between}{right}"


def find(measurements: Sequence[Measurement], metric: str, variant: str) -> Measurement | None:
    """The measurement of `metric` in `variant`."""
    return next((m for m in measurements if m.metric == metric and m.variant == variant), None)


def overlap(a: Measurement, b: Measurement) -> bool | None:
    """Whether the 10–90 % intervals of two measurements overlap; None where one has no interval."""
    if a.p10 is None or a.p90 is None or b.p10 is None or b.p90 is None:
        return None
    return a.p10 <= b.p90 and b.p10 <= a.p90


def speed(measurements: Sequence[Measurement], metric: str = "latency_us") -> str:
    """Compiled against eager in one clause, with its noise and cause; empty where one of them was not measured."""
    eager, compiled = find(measurements, metric, "eager"), find(measurements, metric, "compiled")
    if not eager or not compiled or not compiled.median:
        return ""
    factor = eager.median / compiled.median
    verdict = "faster" if factor > 1 else "slower"
    if overlap(eager, compiled):
        verdict = "neither clearly faster nor slower, the 10–90 % intervals overlap"
    subject = "a call" if metric == "latency_us" else METRICS[metric].title.lower()
    took = f"{subject} went from {arrow(eager.median, compiled.median, METRICS[metric].form, ' to ')}"
    return f"Compiled is {style.ratio(factor)} eager ({verdict}): {launching(measurements) or took}"


def launching(measurements: Sequence[Measurement]) -> str:
    """Device work of eager and compiled against what the host needs to issue a call; empty where that is less."""
    host = find(measurements, "host_us", "compiled")
    eager, compiled = (find(measurements, "device_us", variant) for variant in ("eager", "compiled"))
    if not host or not eager or not compiled or host.median <= compiled.median:
        return ""
    same = abs(compiled.median - eager.median) < SAME * eager.median
    works = (
        f"device work is the same ({arrow(eager.median, compiled.median, style.duration, ' and ')})"
        if same
        else f"device work went from {arrow(eager.median, compiled.median, style.duration, ' to ')}"
    )
    return f"{works}, but the host needs {style.duration(host.median)} to issue a call"


def helped(measurements: Sequence[Measurement]) -> str:
    """The variant that is clearly faster than both eager and compiled, in a sentence; empty where none is."""
    timed = {m.variant: m for m in measurements if m.metric == "latency_us"}
    if not {"eager", "compiled"} <= timed.keys():
        return ""
    best = min(timed.values(), key=lambda m: m.median)
    if best.variant in ("eager", "compiled") or overlap(best, timed["compiled"]):
        return ""
    subject = "CUDA graphs bring" if best.variant == "reduce-overhead" else f"{best.variant} brings"
    return f"{subject} a call to {style.duration(best.median)}."


def work(run: RunSummary) -> str:
    """What became of kernels and peak, as clauses."""
    parts = []
    if run.eager_kernels is not None and run.compiled_kernels is not None:
        eager, compiled = style.number(run.eager_kernels), style.number(run.compiled_kernels)
        parts.append(f"{eager} kernels became {compiled}" if eager != compiled else f"{eager} kernels in both")
    if run.eager_peak_bytes is not None and run.compiled_peak_bytes is not None:
        before, after = style.size(run.eager_peak_bytes), style.size(run.compiled_peak_bytes)
        parts.append(f"the peak went from {before} to {after}" if before != after else f"the peak is {before} in both")
    return ", ".join(parts)


def compiled_work(run: RunSummary, compiles: Sequence[Compile]) -> str:
    """What was compiled, in one sentence."""
    own = [c for c in compiles if c.phase == "drive"]
    done = [c for c in own if c.outcome == "compiled"]
    failed = sum(c.outcome == "failed" for c in own)
    if not done:
        return f"None of {style.plural(len(own), 'frame')} was compiled"
    made = f"{style.plural(len(done), 'compilation')} made {style.plural(run.graphs, 'Inductor graph')}"
    calls = "" if run.kernel_calls is None else f" with {style.plural(run.kernel_calls, 'kernel call')}"
    known = [(failed or None, "failed compilation"), (run.breaks, "graph break"), (run.recompiles, "recompile")]
    troubles = [f", {style.plural(count, noun)}" for count, noun in known if count is not None]
    return f"{made}{calls}{''.join(troubles)}"


def headline(run: RunSummary, measurements: Sequence[Measurement], compiles: Sequence[Compile]) -> str:
    """The sentences of the Overview."""
    fast = speed(measurements) or speed(measurements, "wall_s")
    if not fast:
        return f"{compiled_work(run, compiles)}; not measured against eager."
    rest = "" if launching(measurements) else work(run)
    return " ".join(filter(None, (f"{', '.join(filter(None, (fast, rest)))}.", helped(measurements))))
