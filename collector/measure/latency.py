"""The latency of a step in each variant: interleaved rounds, none of them with a compilation inside."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from fusionscope.collector.measure.step import Step, synchronize
from fusionscope.collector.measure.summary import summed_up
from fusionscope.collector.measure.watch import CompileWatch, compiles_watched
from fusionscope.storage.records import Measurement

ROUNDS = 15  # at least
SECONDS = 1.0  # at least
PATIENCE_S = 30.0  # no new round after it, however few there were
SAMPLE_US = 30_000.0  # calls are timed several at once, until a sample takes this long: a GPU idles before the first
CALLS = 200  # in a sample, at most
ISSUED = 10  # calls at most whose issue is timed at once: a driver's queue of about a thousand launches must not fill
WARM_UP = 3  # calls at least: CUDA graphs are recorded in the second, and replayed from the third
SETTLE = 10  # calls at most, while they still compile


@dataclass
class Samples:
    """Timed samples of one variant in microseconds per call, and why others were thrown away."""

    calls: int = 1  # back to back, in each sample
    us: list[float] = field(default_factory=list)
    host_us: list[float] = field(default_factory=list)  # until the host had issued a call; empty on the CPU
    discarded: int = 0
    why: Counter[str] = field(default_factory=Counter)  # what began inside the discarded ones


def warm_up(step: Step, watch: CompileWatch, device: torch.device) -> None:
    """Run the step until a call compiles and tunes nothing."""
    for calls in range(1, SETTLE + 1):
        before = watch.begun.copy()
        step()
        synchronize(device)
        if not watch.since(before) and calls >= WARM_UP:
            return


def measure_latency(
    steps: Mapping[str, Step], device: torch.device, progress: Callable[[str], None]
) -> dict[str, Samples]:
    """Samples of each variant, taken in turn so that a drift of the machine meets all variants alike."""
    with compiles_watched() as watch:
        samples = {variant: Samples() for variant in steps}
        for variant, step in steps.items():
            warm_up(step, watch, device)
            samples[variant].calls = _calls_per_sample(step, device)
        for number, order in enumerate(_rounds(list(steps))):
            progress(f"latency, round {number + 1}")
            for variant in order:
                _sample(steps[variant], samples[variant], watch, device)
    return samples


def latency_records(variant: str, samples: Samples, device: torch.device) -> Iterator[Measurement]:
    """The samples as records; none where every one of them was thrown away."""
    sampled = {"latency_us": (samples.us, _method(samples, device)), "host_us": (samples.host_us, _issuing(samples))}
    for metric, (values, method) in sampled.items():
        if values:
            reason = ", ".join(samples.why) or None
            discarded = samples.discarded
            yield summed_up(variant, metric, values, unit="us", method=method, discarded=discarded, reason=reason)


def _method(samples: Samples, device: torch.device) -> str:
    waiting = "torch.cuda.synchronize() before and after" if device.type == "cuda" else "perf_counter around the calls"
    each = "one call" if samples.calls == 1 else f"the mean of {samples.calls} calls back to back"
    return f"median of {len(samples.us)} rounds, variants in turn; each {each}; wall time, {waiting}; after warm-up"


def _issuing(samples: Samples) -> str:
    calls = min(samples.calls, ISSUED)
    each = "a call" if calls == 1 else f"a call, the mean of {calls} back to back"
    return (
        f"median of {len(samples.host_us)} rounds, variants in turn; wall time until the host has issued {each}, "
        "begun on an idle device and without waiting for it"
    )


def _rounds(variants: Sequence[str]) -> Iterator[Sequence[str]]:
    """The order within each round, forwards and backwards in turn, until both minima are met."""
    start, done = time.perf_counter(), 0
    while True:
        yield variants if done % 2 == 0 else variants[::-1]
        done, elapsed = done + 1, time.perf_counter() - start
        if elapsed > PATIENCE_S or (done >= ROUNDS and elapsed >= SECONDS):
            return


def _calls_per_sample(step: Step, device: torch.device) -> int:
    once_us = min(_time_us(step, 1, device) for _ in range(3))
    return min(CALLS, math.ceil(SAMPLE_US / once_us))


def _sample(step: Step, samples: Samples, watch: CompileWatch, device: torch.device) -> None:
    before = watch.begun.copy()
    taken_us = _time_us(step, samples.calls, device)
    issued_us = _time_us(step, min(samples.calls, ISSUED), device, wait=False) if device.type == "cuda" else None
    if begun := watch.since(before):
        samples.discarded += 1
        samples.why += begun
        return
    samples.us.append(taken_us)
    if issued_us is not None:
        samples.host_us.append(issued_us)


def _time_us(step: Step, calls: int, device: torch.device, *, wait: bool = True) -> float:
    """Microseconds per call; without `wait` the device may still be at work when the clock is stopped."""
    synchronize(device)
    start = time.perf_counter_ns()
    for _ in range(calls):
        step()
    if wait:
        synchronize(device)
    return (time.perf_counter_ns() - start) / calls / 1000
