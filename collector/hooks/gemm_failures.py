"""Why a candidate could not be benchmarked: it does not fit the device, it crashed, it is not implemented.

benchmark_choices turns what benchmark_choice raises into an infinite time and keeps no reason
(torch/_inductor/select_algorithm.py). Candidates benchmarked in another process are out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import contests
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import CandidateFailed

NAME = "gemm_failures"
RECORDS = (CandidateFailed,)
TARGETS = {"torch._inductor.select_algorithm:AlgorithmSelectorCache.benchmark_choice": ("choice",)}


def problem() -> str | None:
    """benchmark_choice runs one candidate."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Look at what each benchmark raises, and let it go on."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark_choice(cls: Any, choice: Any, *arguments: Any, **keywords: Any) -> Any:
            try:
                return original(cls, choice, *arguments, **keywords)
            except Exception as error:
                with emit.guarded():
                    if (seat := contests.seat(choice)) is not None:
                        text = f"{type(error).__name__}: {error}"
                        emit(CandidateFailed(seat.graph_id, seat.contest, seat.position, text))
                raise

        return benchmark_choice

    with patched(AlgorithmSelectorCache, "benchmark_choice", wrap):
        yield
