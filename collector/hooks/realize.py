"""One producer, several users: decided at lowering, before the scheduler sees it.

StorageBox.should_realize_on_reuse gives the producer a buffer or lets it be inlined, that is computed again, in each
user (torch/_inductor/ir.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import RealizeAsked

NAME = "realize"
RECORDS = (RealizeAsked,)
TARGETS = {"torch._inductor.ir:StorageBox.should_realize_on_reuse": ("users",)}


def problem() -> str | None:
    """graph_reuse came with torch 2.13 and is passed through."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note the answers that are about loops with more than one user."""
    from torch._inductor.ir import Pointwise, Reduction, StorageBox

    def wrap(original: Callable[..., bool]) -> Callable[..., bool]:
        def should_realize_on_reuse(box: Any, users: int, **kwargs: Any) -> bool:
            realized = original(box, users, **kwargs)
            with emit.guarded():
                if isinstance(box.data, (Pointwise, Reduction)) and _is_fanout(users):
                    emit(_asked(box, users, bool(realized)))
            return realized

        return should_realize_on_reuse

    with patched(StorageBox, "should_realize_on_reuse", wrap):
        yield


def _is_fanout(users: int) -> bool:
    """Users in the graph. A broadcast asks too, with the number of times that it repeats an element."""
    from torch._inductor.virtualized import V

    return users > 1 and len(getattr(V.current_node, "users", ())) == users


def _asked(box: Any, users: int, realized: bool) -> RealizeAsked:
    from torch._inductor import config
    from torch._inductor.virtualized import V

    cpu = box.get_device().type == "cpu"
    count = box.data.inner_fn_opcount()
    return RealizeAsked(
        graph_id=whereabouts.graph_id() or "",
        node=V.current_node.name,
        users=users,
        realized=realized,
        reads=box.num_reads(),
        opcount=count.num_ops,
        ops=tuple(sorted(count.used_ops)),
        cpu=cpu,
        most_reads=config.realize_reads_threshold,
        most_ops=_most_ops(cpu),
        bytes=_bytes(box.data),
    )


def _most_ops(cpu: bool) -> int:
    from torch._inductor import config

    if config.realize_opcount_threshold is not None:
        return int(config.realize_opcount_threshold)
    # torch 2.13 and later: a limit for each kind of device
    return int(config.realize_cpu_opcount_threshold if cpu else config._realize_opcount_threshold_default)


def _bytes(loops: Any) -> int | None:
    from torch._inductor.utils import get_dtype_size, sympy_product

    elements = reading.size_hint(sympy_product(loops.get_size()))
    return None if elements is None else elements * int(get_dtype_size(loops.get_dtype()))
