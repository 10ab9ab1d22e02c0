"""Why a pair is not fused, in torch's own words: WhyNoFuse is called with the reason before it logs itself.

The logger would tell as much, yet stops when the user calls torch._logging.set_logs(), and at DEBUG it has torch write
out every candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import ReasonLogged

NAME = "fusion_reasons"
RECORDS = (ReasonLogged,)
TARGETS = {"torch._inductor.scheduler:WhyNoFuse.__call__": ("reason",)}


def problem() -> str | None:
    """The class is the same from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read each reason with its arguments filled in."""
    from torch._inductor.scheduler import WhyNoFuse

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def tell(why: Any, reason: str, *args: Any) -> None:
            with emit.guarded():
                graph_id = whereabouts.graph_id()
                if graph_id is not None:
                    emit(ReasonLogged(graph_id, why.name1, why.name2, reason % args if args else reason))
            original(why, reason, *args)

        return tell

    with patched(WhyNoFuse, "__call__", wrap):
        yield
