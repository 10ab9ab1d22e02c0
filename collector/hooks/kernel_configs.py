"""Every configuration in which a Triton kernel was compiled, and what it takes of the GPU.

CachingAutotuner.precompile ends with all launchers made, before benchmarking drops any; it runs in this process even
where a worker compiled (torch/_inductor/async_compile.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import autotuners
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LauncherChosen, LauncherMade

NAME = "kernel_configs"
RECORDS = (LauncherMade, LauncherChosen)
TARGETS = {"torch._inductor.runtime.triton_heuristics:CachingAutotuner.precompile": ("self",)}


def problem() -> str | None:
    """CachingAutotuner keeps its launchers from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the launchers of each kernel once they are made; a kernel that several graphs share is read for each."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def precompile(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
            listed = len(tuner.configs or tuner.compile_results)
            result = original(tuner, *arguments, **keywords)
            with emit.guarded():
                autotuners.note(tuner)
                _emit_launchers(emit, tuner, listed)
            return result

        return precompile

    with patched(CachingAutotuner, "precompile", wrap):
        yield


def _emit_launchers(emit: Emit, tuner: Any, listed: int) -> None:
    for position, launcher in enumerate(tuner.launchers):
        for made in autotuners.launchers_made(tuner, launcher, _origin(tuner, launcher, position, listed)):
            emit(made)
            if len(tuner.launchers) == 1 and not _tuned_later(tuner, launcher):
                emit(LauncherChosen(made.name, made.config))


def _origin(tuner: Any, launcher: Any, position: int, listed: int) -> str:
    if getattr(launcher.config, "found_by_coordesc", False):
        return "coordinate_descent"
    if (tuner.autotune_cache_info or {}).get("autotune_cache_state") == "hit":
        return "autotune_cache"
    return "heuristics" if position < listed else "register_pressure"  # _dynamic_scale_rblock appends


def _tuned_later(tuner: Any, launcher: Any) -> bool:
    """Whether the first run will look for a better configuration still (CachingAutotuner.run)."""
    descends = tuner.inductor_meta.get("coordinate_descent_tuning")
    return bool(descends and not getattr(launcher.config, "found_by_coordesc", False))
