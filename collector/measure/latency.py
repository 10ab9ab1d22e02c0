"""The latency of a step, eager against compiled: interleaved rounds, none of them with a compilation inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles

import torch
from torch._dynamo.callback import CallbackArgs, callback_handler

from fusionscope.collector.measure.step import Step, synchronize
from fusionscope.storage.records import Measurement

ROUNDS = 15  # at least
SECONDS = 1.0  # at least
PATIENCE_S = 30.0  # no new round after it, however few there were
SAMPLE_US = 5_000.0  # short calls are timed several at once, until a sample takes this long
CALLS = 100  # in a sample, at most
WARM_UP = 3  # calls at least: CUDA graphs are recorded in the second, and replayed from the third
SETTLE = 10  # calls at most, while they still compile


@dataclass
class CompileWatch:
    """How many compilations began (a backward compiled late and a CUDA graph's recording are among them)."""

    begun: int = 0

    def notice(self, _: CallbackArgs) -> None:
        self.begun += 1


@dataclass
class Samples:
    """Timed samples of one variant in microseconds per call, and how many were thrown away for a compilation."""

    calls: int = 1  # back to back, in each sample
    us: list[float] = field(default_factory=list)
    discarded: int = 0


@contextmanager
def compiles_watched() -> Iterator[CompileWatch]:
    """Count the compilations that begin inside the block, in any thread."""
    watch = CompileWatch()
    callback_handler.register_start_callback(watch.notice)
    try:
        yield watch
    finally:
        callback_handler.remove_start_callback(watch.notice)


def warm_up(step: Step, watch: CompileWatch, device: torch.device) -> None:
    """Run the step until a call compiles nothing."""
    for calls in range(1, SETTLE + 1):
        before = watch.begun
        step()
        synchronize(device)
        if watch.begun == before and calls >= WARM_UP:
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
    """The samples as a record; none where every one of them was thrown away."""
    if not samples.us:
        return
    tenths = quantiles(samples.us, n=10, method="inclusive") if len(samples.us) > 1 else samples.us * 9
    yield Measurement(
        variant=variant,
        metric="latency_us",
        median=median(samples.us),
        p10=tenths[0],
        p90=tenths[8],
        samples=len(samples.us),
        unit="us",
        discarded=samples.discarded,
        reason="something was compiled during the sample" if samples.discarded else None,
        method=_method(samples, device),
    )


def _method(samples: Samples, device: torch.device) -> str:
    waiting = "torch.cuda.synchronize() before and after" if device.type == "cuda" else "perf_counter around the calls"
    each = "one call" if samples.calls == 1 else f"the mean of {samples.calls} calls back to back"
    return f"median of {len(samples.us)} rounds, variants in turn; each {each}; wall time, {waiting}; after warm-up"


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
    return max(1, min(CALLS, round(SAMPLE_US / once_us)))


def _sample(step: Step, samples: Samples, watch: CompileWatch, device: torch.device) -> None:
    before = watch.begun
    taken_us = _time_us(step, samples.calls, device)
    if watch.begun == before:
        samples.us.append(taken_us)
    else:
        samples.discarded += 1


def _time_us(step: Step, calls: int, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter_ns()
    for _ in range(calls):
        step()
    synchronize(device)
    return (time.perf_counter_ns() - start) / calls / 1000
