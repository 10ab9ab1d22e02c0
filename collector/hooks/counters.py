"""torch's own counters, as they grew while the program ran, measuring aside."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from contextlib import contextmanager

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, unmet
from fusionscope.storage.records import Counter

NAME = "counters"
RECORDS = (Counter,)
TARGETS: dict[str, tuple[str, ...]] = {"torch._dynamo.utils:counters": ()}


def problem() -> str | None:
    """The counters are group → name → count."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Compare the counters at both ends; torch._dynamo.reset() does not clear them."""
    from torch._dynamo.utils import counters

    def counted() -> Counts[tuple[str, str]]:
        return Counts({(group, name): count for group, names in counters.items() for name, count in names.items()})

    before, measuring = counted(), Counts[tuple[str, str]]()

    @contextmanager
    def aside() -> Iterator[None]:
        begun = counted()
        try:
            yield
        finally:
            measuring.update(counted() - begun)

    try:
        with whereabouts.around_measuring(aside):
            yield
    finally:
        with emit.guarded():
            for (group, name), grown in (counted() - before - measuring).items():
                emit(Counter(name=name if group == "inductor" else f"{group}.{name}", value=grown))
