"""torch's own counters, as they grew during the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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

    before = {(group, name): count for group, names in counters.items() for name, count in names.items()}
    try:
        yield
    finally:
        with emit.guarded():
            for group, names in counters.items():
                for name, count in names.items():
                    grown = count - before.get((group, name), 0)
                    if grown > 0:
                        emit(Counter(name=name if group == "inductor" else f"{group}.{name}", value=grown))
