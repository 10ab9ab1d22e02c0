"""Where in the compile stack we are: the compile and the Inductor graph being worked on, by their names in the library.

Compile ids restart at 0/0 after `torch._dynamo.reset()` (torch/_dynamo/__init__.py sets FRAME_COUNTER to 0), so a
restart adds "@1", "@2", … . Forward and backward share a compile id, and one compile may hold several graphs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

_epoch = 0
_phase = "drive"
_asides: list[Callable[[], AbstractContextManager[None]]] = []
_started: set[tuple[str, int]] = set()
_names: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
_taken: set[str] = set()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.stage: str | None = None
        self.passes: list[str] = []


_here = _Thread()


def reset() -> None:
    """Forget everything: a new recording begins."""
    global _epoch, _phase
    _epoch, _phase = 0, "drive"
    _started.clear()
    _names.clear()
    _taken.clear()


def epoch() -> int:
    """How often torch's numbering restarted since the recording began."""
    return _epoch


def phase() -> str:
    """drive while the user's own calls run, measure while the recorder runs the model again."""
    return _phase


@contextmanager
def measuring() -> Iterator[None]:
    """Compiles inside the context are caused by measuring."""
    global _phase
    with ExitStack() as asides:
        for aside in _asides:
            asides.enter_context(aside())
        before, _phase = _phase, "measure"
        try:
            yield
        finally:
            _phase = before


@contextmanager
def around_measuring(aside: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """While this context lasts, whatever is measured is measured inside an `aside()`."""
    _asides.append(aside)
    try:
        yield
    finally:
        _asides.remove(aside)


def compile_started(torch_id: str, attempt: int) -> None:
    """Note that Dynamo began a compile attempt: the same one twice means that the numbering restarted."""
    global _epoch
    if (torch_id, attempt) in _started:
        _epoch += 1
        _started.clear()
    _started.add((torch_id, attempt))


def named(torch_id: str) -> str:
    """The library's name of one of torch's compile ids, in the epoch of now."""
    return f"{torch_id}@{_epoch}" if _epoch else torch_id


def compile_id() -> str | None:
    """The compile that this thread is in, or None."""
    from torch._guards import CompileContext

    trace = CompileContext.current_trace_id()
    return named(str(trace.compile_id)) if trace else None


def graph() -> Any | None:
    """Inductor's GraphLowering that this thread works on, or None."""
    from torch._inductor.virtualized import NullHandler, V

    lowering = V.graph  # a property of some calls, asked at every pair
    return None if isinstance(lowering, NullHandler) else lowering


def graph_id() -> str | None:
    """The name of the Inductor graph that this thread works on, such as "0/0.forward", or None."""
    lowering = graph()
    return name_of(lowering) if lowering is not None else None


@contextmanager
def at_stage(stage: str) -> Iterator[None]:
    """The passes inside the context work on the graph of that stage, such as "joint"."""
    before, _here.stage = _here.stage, stage
    try:
        yield
    finally:
        _here.stage = before


def pass_began(name: str) -> None:
    """Note that an FX pass began in this thread."""
    _here.passes.append(name)


def pass_ended() -> None:
    """Note that the latest pass ended."""
    _here.passes.pop()


def outermost_pass() -> str | None:
    """The pass that this thread is in; of passes that run others the outermost."""
    return _here.passes[0] if _here.passes else None


def graph_to_come() -> str | None:
    """The graph that passes work on: of their stage, else the one that this thread will hand to Inductor's lowering."""
    from torch._guards import TracingContext

    compiling, context = compile_id(), TracingContext.try_get()
    names = context.aot_graph_name if context else None  # ["0_forward"]: track_graph_compiling
    stage = _here.stage or (names[-1].rpartition("_")[2] if names else None)
    return f"{compiling}.{stage}" if compiling and stage else None


def fx_node() -> str | None:
    """The FX node that this thread lowers, or None."""
    from torch._inductor.virtualized import NullHandler, V

    return None if isinstance(V.current_node, NullHandler) else getattr(V.current_node, "name", None)


def name_of(lowering: Any) -> str:
    """The name of a GraphLowering: made when it is first met, the same ever after."""
    if (known := _names.get(lowering)) is not None:
        return known
    name = base = _basis(lowering)
    nth = 1
    while name in _taken:
        nth += 1
        name = f"{base}#{nth}"
    _taken.add(name)
    _names[lowering] = name
    return name


def direction_of(lowering: Any) -> str:
    """forward, backward, or inference (a forward without gradients)."""
    if getattr(lowering, "is_backward", False):
        return "backward"
    return "inference" if getattr(lowering, "is_inference", False) else "forward"


def _basis(lowering: Any) -> str:
    parent = getattr(lowering, "parent", None)  # of a SubgraphLowering: cond, while_loop, flex attention
    if parent is not None:
        return f"{name_of(parent)}.{lowering.name}"
    return f"{compile_id() or 'no-compile'}.{direction_of(lowering)}"
