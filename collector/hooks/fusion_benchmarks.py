"""What benchmarks decided about legal pairs: config.benchmark_fusion, and epilogues of templates under max-autotune.

Scheduler.speedup_by_fusion answers at once, or hands back a function that benchmarks when its kernels are compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import FusionBenchmarked

NAME = "fusion_benchmarks"
RECORDS = (FusionBenchmarked,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.scheduler:Scheduler.speedup_by_fusion": ("node1", "node2"),
    "torch._inductor.scheduler:Scheduler.benchmark_codegened_module": ("module",),
    "torch._inductor.scheduler:Scheduler.benchmark_fused_nodes": ("nodes",),
    "torch._inductor.ir:MultiTemplateBuffer.get_min_choice": (),
}


@dataclass(slots=True)
class _Pair:
    """A pair whose benchmark was asked for."""

    graph_id: str
    a: str
    b: str
    template_ms: float | None = None
    other_ms: float | None = None
    kernels_ms: list[float] = field(default_factory=list)

    def told(self, fuse: bool) -> FusionBenchmarked:
        """What is known once the answer is."""
        times = (self.template_ms, self.other_ms, tuple(self.kernels_ms))
        return FusionBenchmarked(self.graph_id, self.a, self.b, *times, fuse=fuse)


class _Thread(threading.local):
    pair: _Pair | None = None  # being benchmarked


def problem() -> str | None:
    """All four have kept their signatures since torch 2.11."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the times that are taken while a pair is decided on, and the decision."""
    from torch._inductor.ir import MultiTemplateBuffer
    from torch._inductor.scheduler import Scheduler

    here = _Thread()

    with (
        patched(Scheduler, "speedup_by_fusion", lambda original: _deciding(original, here, emit)),
        patched(Scheduler, "benchmark_codegened_module", lambda original: _timing(original, here, emit, _kernel)),
        patched(Scheduler, "benchmark_fused_nodes", lambda original: _timing(original, here, emit, _other)),
        patched(MultiTemplateBuffer, "get_min_choice", lambda original: _timing(original, here, emit, _template)),
    ):
        yield


@contextmanager
def _deciding_on(here: _Thread, pair: _Pair | None) -> Iterator[None]:
    before, here.pair = here.pair, pair
    try:
        yield
    finally:
        here.pair = before


def _deciding(original: Callable[..., Any], here: _Thread, emit: Emit) -> Callable[..., Any]:
    def speedup_by_fusion(scheduler: Any, node1: Any, node2: Any, *args: Any, **kwargs: Any) -> Any:
        pair = None
        with emit.guarded():
            pair = _Pair(whereabouts.graph_id() or "", node1.get_name(), node2.get_name())
        with _deciding_on(here, pair):
            result = original(scheduler, node1, node2, *args, **kwargs)
        with emit.guarded():
            if pair is not None and result.callable_fn is not None:
                result.callable_fn = _later(result.callable_fn, here, pair, emit)
            elif pair is not None and not result.should_fuse:
                emit(pair.told(fuse=False))
        return result

    return speedup_by_fusion


def _later(benchmark: Callable[[], bool], here: _Thread, pair: _Pair, emit: Emit) -> Callable[[], bool]:
    def benchmark_when_ready() -> bool:
        pair.kernels_ms.clear()  # those of config.multi_kernel_hints decide nothing
        with _deciding_on(here, pair):
            fuse = benchmark()
        with emit.guarded():
            emit(pair.told(fuse))
        return fuse

    return benchmark_when_ready


def _timing(
    original: Callable[..., Any], here: _Thread, emit: Emit, keep: Callable[[_Pair, Any], None]
) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if here.pair is not None:
            with emit.guarded():
                keep(here.pair, result)
        return result

    return timed


def _kernel(pair: _Pair, result: tuple[float, str]) -> None:
    pair.kernels_ms.append(result[0])


def _other(pair: _Pair, result: tuple[float, str]) -> None:
    pair.other_ms = result[0]


def _template(pair: _Pair, result: tuple[Any, float]) -> None:
    pair.template_ms = result[1]
