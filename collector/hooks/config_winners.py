"""The configuration that won the contest of a Triton kernel on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import autotuners
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LauncherChosen

NAME = "config_winners"
RECORDS = (LauncherChosen,)
TARGETS = {"torch._inductor.runtime.triton_heuristics:CachingAutotuner.autotune_to_one_config": ("self",)}


def problem() -> str | None:
    """The method leaves the winner as the only launcher."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the launcher that is left."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def autotune_to_one_config(tuner: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(tuner, *arguments, **keywords)
            with emit.guarded():
                (winner,) = tuner.launchers
                for name in autotuners.names(tuner):
                    emit(LauncherChosen(name, autotuners.config_name(winner.config)))
            return result

        return autotune_to_one_config

    with patched(CachingAutotuner, "autotune_to_one_config", wrap):
        yield
