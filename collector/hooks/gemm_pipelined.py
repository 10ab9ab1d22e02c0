"""The times of candidates that were benchmarked while compiling went on (config.pipeline_max_autotune_gemm).

Their results come from AsyncAutotuner in the scheduler, and are told to log_results alone
(torch/_inductor/select_algorithm.py, get_timings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import contests
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import CandidateTimed

NAME = "gemm_pipelined"
RECORDS = (CandidateTimed,)
TARGETS = {"torch._inductor.select_algorithm:AlgorithmSelectorCache.log_results": ("name", "input_nodes", "timings")}


def problem() -> str | None:
    """log_results takes the times as its third argument."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Take the times of pipelined contests; the others are told to the feedback savers, times from the cache too."""
    from torch._inductor import select_algorithm
    from torch._inductor.autotune_process import use_pipelined_autotuning

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def log_results(name: str, input_nodes: Any, timings: Any, *arguments: Any, **keywords: Any) -> Any:
            with emit.guarded():
                for candidate, ms in timings.items() if use_pipelined_autotuning() else ():
                    if (seat := contests.seat(candidate)) is not None:
                        emit(CandidateTimed(seat.graph_id, seat.contest, seat.position, name, float(ms)))
            return original(name, input_nodes, timings, *arguments, **keywords)

        return log_results

    with patched(select_algorithm.AlgorithmSelectorCache, "log_results", wrap):
        yield
