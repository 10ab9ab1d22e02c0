"""The plan: the wrapper's own lines after memory planning, read as objects before they become text.

PythonWrapperCodegen.run_wrapper_ir_passes has the same body from torch 2.11 on. A ReuseLine that is there before it is
an in-place update; one that appears in it takes memory from the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import reading, whereabouts
from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.collector.observations import LIBRARY_CALLS, LineSeen, WrapperPlanned

NAME = "wrapper_plan"
RECORDS = (WrapperPlanned,)
TARGETS = {"torch._inductor.codegen.wrapper:PythonWrapperCodegen.run_wrapper_ir_passes": ("is_inference",)}


def problem() -> str | None:
    """Lines and the pass that plans them are in torch/_inductor/codegen/wrapper.py."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Read the lines on both sides of the planning pass."""
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def run_wrapper_ir_passes(wrapper: Any, is_inference: bool) -> Any:
            in_place: tuple[str, ...] = ()
            with emit.guarded():
                in_place = tuple(name for line in wrapper.lines if (name := _reused_as(line)))
            result = original(wrapper, is_inference)
            with emit.guarded():
                lines = tuple(_line(line) for line in wrapper.lines)
                emit(WrapperPlanned(whereabouts.graph_id() or "", lines, in_place))
            return result

        return run_wrapper_ir_passes

    with patched(PythonWrapperCodegen, "run_wrapper_ir_passes", wrap):
        yield


def _reused_as(line: Any) -> str | None:
    return str(line.reused_as.get_name()) if type(line).__name__ == "ReuseLine" else None


def _line(line: Any) -> LineSeen:
    kind = type(line).__name__
    node = getattr(line, "node", None)
    reused = getattr(line, "reused_as", None)
    return LineSeen(
        kind=kind,
        buffer=_name(node) or getattr(line, "result_name", None),  # the latter of a MultiOutputLine
        bytes=None if node is None else reading.buffer_bytes(node),
        reused_as=_name(reused),
        reused_bytes=None if reused is None else reading.buffer_bytes(reused),
        is_reused=bool(getattr(line, "is_reused", False)),
        kernel=getattr(line, "kernel_name", None) or _extern_kernel(kind, node),
        args=_arguments(line, node),
        text=_text(line),
    )


def _name(node: Any) -> str | None:
    return str(node.get_name()) if hasattr(node, "get_name") else None


def _extern_kernel(kind: str, node: Any) -> str | None:
    return str(node.get_kernel_name()) if kind in LIBRARY_CALLS else None


def _arguments(line: Any, node: Any) -> tuple[str, ...]:
    """Names that a call is handed: a generated kernel's arguments, a library kernel's reads."""
    if hasattr(line, "call_args"):
        return tuple(str(argument) for argument in line.call_args)
    if type(line).__name__ in LIBRARY_CALLS:
        return tuple(sorted(dependency.name for dependency in node.get_reads()))
    return ()


def _text(line: Any) -> str | None:
    """A line that is text already (a DeferredLine holds it in `line`), without its line break."""
    text = line if isinstance(line, str) else getattr(line, "line", None)
    return text.strip()[:500] if isinstance(text, str) else None
