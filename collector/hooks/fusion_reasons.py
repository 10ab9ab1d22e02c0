"""Why a pair is not fused, in torch's own words, taken where torch would log them: WhyNoFuse.__call__.

Listening to the logger instead would mean DEBUG, at which the scheduler also prints every node of every round.
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
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.scheduler:WhyNoFuse": ("node1", "node2"),
    "torch._inductor.scheduler:WhyNoFuse.__call__": ("reason",),
}


def problem() -> str | None:
    """The class is the same from torch 2.11 on."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note each reason as it is given."""
    from torch._inductor.scheduler import WhyNoFuse

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def give(why: Any, reason: str, *args: Any) -> None:
            original(why, reason, *args)
            with emit.guarded():
                graph_id = whereabouts.graph_id()
                if graph_id is not None:
                    emit(ReasonLogged(graph_id, why.name1, why.name2, reason % args if args else reason))

        return give

    with patched(WhyNoFuse, "__call__", wrap):
        yield
