"""The time of each configuration of a Triton kernel that is tried on the GPU.

CachingAutotuner.bench runs one launcher, for benchmark_all_configs, for the descent along the coordinates and for
combo kernels alike (torch/_inductor/runtime/triton_heuristics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import autotuners
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LauncherMade, LauncherTimed

NAME = "config_timings"
RECORDS = (LauncherMade, LauncherTimed)
TARGETS = {"torch._inductor.runtime.triton_heuristics:CachingAutotuner.bench": ("launcher",)}


def problem() -> str | None:
    """The bench method takes a launcher and returns milliseconds."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Take the time, and the launcher itself: a tuner makes new ones while it looks for a better configuration."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def bench(tuner: Any, launcher: Any, *arguments: Any, **keywords: Any) -> Any:
            ms = original(tuner, launcher, *arguments, **keywords)
            with emit.guarded():
                for made in autotuners.launchers_made(tuner, launcher, _origin(tuner)):
                    emit(made)
                    emit(LauncherTimed(made.name, made.config, float(ms)))
            return ms

        return bench

    with patched(CachingAutotuner, "bench", wrap):
        yield


def _origin(tuner: Any) -> str:
    """Of a launcher that precompile did not make."""
    return "coordinate_descent" if tuner.inductor_meta.get("coordinate_descent_tuning") else "combo_autotune"
