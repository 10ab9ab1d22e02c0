"""The times of the candidates for an operation, benchmarked just now or remembered from an earlier contest.

select_algorithm.add_feedback_saver is torch's own registration. With config.pipeline_max_autotune_gemm it is never
called: see the hook `gemm_pipelined`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import contests
from fusionscope.collector.hook import Emit, unmet
from fusionscope.collector.observations import CandidateTimed

NAME = "gemm_timings"
RECORDS = (CandidateTimed,)
TARGETS = {
    "torch._inductor.select_algorithm:add_feedback_saver": ("fn",),
    "torch._inductor.select_algorithm:AlgorithmSelectorCache.do_autotuning": ("name", "input_nodes", "choices"),
}


def problem() -> str | None:
    """The registration is torch's own; do_autotuning calls what is registered."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Register for the time of the recording."""
    from torch._inductor import select_algorithm

    def timed(timings: Any, name: str, *_: Any) -> None:
        with emit.guarded():
            for candidate, ms in timings.items():
                if (seat := contests.seat(candidate)) is not None:
                    emit(CandidateTimed(seat.graph_id, seat.contest, seat.position, name, float(ms)))

    select_algorithm.add_feedback_saver(timed)
    functions = select_algorithm.get_algorithm_selector_cache().feedback_saver_fns
    try:
        yield
    finally:
        if timed in functions:  # else the program has cleared them
            functions.remove(timed)
