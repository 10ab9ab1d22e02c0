"""The configuration at which a descent along the coordinates ended (config.coordinate_descent_tuning)."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import autotuners
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LauncherChosen, LauncherMade

NAME = "coordinate_descent"
RECORDS = (LauncherMade, LauncherChosen)
TARGETS = {"torch._inductor.runtime.triton_heuristics:CachingAutotuner.coordinate_descent_tuning": ("launcher",)}


def problem() -> str | None:
    """The method takes the launcher to begin with and returns the best."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the launcher that it returns; a kernel that is not tuned, as a template, asks again at every run."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    told: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def coordinate_descent_tuning(tuner: Any, launcher: Any, *arguments: Any, **keywords: Any) -> Any:
            best = original(tuner, launcher, *arguments, **keywords)
            if told.get(tuner) is not best:
                told[tuner] = best
                with emit.guarded():
                    for made in autotuners.launchers_made(tuner, best, NAME):
                        emit(made)
                        emit(LauncherChosen(made.name, made.config))
            return best

        return coordinate_descent_tuning

    with patched(CachingAutotuner, "coordinate_descent_tuning", wrap):
        yield
