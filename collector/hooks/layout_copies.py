"""Copies that Inductor inserts to give a library kernel the layout that it wants.

ExternKernel.copy_input is a real copy only where its source already has a buffer: an unrealized loop is merely realized
in the wanted layout (torch/_inductor/ir.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.storage.records import LayoutChange

NAME = "layout_copies"
RECORDS = (LayoutChange,)
TARGETS = {"torch._inductor.ir:ExternKernel.require_strides": ("x",)}


def problem() -> str | None:
    """The one place where such a copy is made."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Compare the strides before and after each demand."""
    from torch._inductor.ir import ExternKernel

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def require_strides(cls: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
            had = _buffer_name(x)
            before = _strides(x)
            result = original(cls, x, *args, **kwargs)
            with emit.guarded():
                after = _strides(result)
                if before is not None and before != after:
                    emit(_change(result, before, after, is_copy=had is not None and had != _buffer_name(result)))
            return result

        return require_strides

    with patched(ExternKernel, "require_strides", wrap):
        yield


def _change(result: Any, before: Any, after: Any, *, is_copy: bool) -> LayoutChange:
    from torch._inductor.virtualized import V

    node = getattr(V.current_node, "name", None)
    return LayoutChange(
        graph_id=whereabouts.graph_id() or "",
        node=node,
        kind="copy_input" if is_copy else "realize_in_layout",
        is_copy=is_copy,
        from_stride=before,
        to_stride=after,
        bytes=_bytes(result),
        reason=f"the library kernel of {node} asks for these strides",
    )


def _buffer_name(x: Any) -> str | None:
    """The buffer behind a value; None for a loop that has no buffer yet."""
    return str(x.get_name()) if getattr(x, "maybe_get_name", lambda: None)() else None


def _strides(x: Any) -> tuple[str, ...] | None:
    stride = getattr(x, "maybe_get_stride", lambda: None)()
    return None if stride is None else reading.size_texts(stride)


def _bytes(x: Any) -> int | None:
    from torch._inductor.utils import get_dtype_size, sympy_product

    elements = reading.size_hint(sympy_product(x.get_size()))
    return None if elements is None else elements * int(get_dtype_size(x.get_dtype()))
