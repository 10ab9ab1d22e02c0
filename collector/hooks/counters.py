"""torch's own counters, as they grew during the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fusionscope.collector.hook import Emit, missing
from fusionscope.storage.records import Counter

NAME = "counters"
RECORDS = (Counter,)


def problem() -> str | None:
    """torch._dynamo.utils.counters: group -> name -> count."""
    from torch._dynamo import utils

    return missing(utils, "counters")


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
