"""Why a candidate could not be compiled, as torch logs it; it is struck off the list before any is benchmarked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fusionscope.collector import contests
from fusionscope.collector.hook import Emit, listening, unmet
from fusionscope.collector.observations import CandidateFailed

NAME = "gemm_compile_failures"
RECORDS = (CandidateFailed,)
TARGETS: dict[str, tuple[str, ...]] = {"torch._inductor.select_algorithm:log": ()}

_FAILED = "Exception %s for benchmark choice %s"  # in make_precompile_fn, torch 2.11 to 2.14


def problem() -> str | None:
    """The module logs each exception with the candidate that it belongs to."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen at ERROR, which is on unless the program turned it off."""
    from torch._inductor import select_algorithm

    with listening(select_algorithm.log, _Handler(emit), logging.ERROR):
        yield


class _Handler(logging.Handler):
    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.ERROR)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        with self._emit.guarded():
            if record.msg == _FAILED and isinstance(record.args, tuple):
                error, candidate = record.args
                if (seat := contests.seat(candidate)) is not None:
                    text = f"{type(error).__name__}: {error}"
                    self._emit(CandidateFailed(seat.graph_id, seat.contest, seat.position, text))
