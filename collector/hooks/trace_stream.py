"""torch's structured trace, in process: graphs, breaks, recompiles, guards, phases, caches and output code.

The logger is the one behind TORCH_TRACE (torch/_logging/_internal.py). The handler goes to index 0: the built-in
LazyTraceHandler removes itself during its first emit, and the handler after it then misses that record.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, unmet
from fusionscope.collector.observations import TraceEvent

NAME = "trace_stream"
RECORDS = (TraceEvent,)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._logging._internal:trace_log": (),
    "torch._logging.structured:INTERN_TABLE": (),
}

_SYMBOLS = {"create_symbol", "create_unbacked_symbol", "symbolic_shape_specialization"}
_EVENTS = _SYMBOLS | {
    "dynamo_start",
    "dynamo_output_graph",
    "aot_joint_graph",
    "aot_forward_graph",
    "aot_backward_graph",
    "aot_inference_graph",
    "inductor_post_grad_graph",
    "inductor_output_code",
    "dynamo_cpp_guards_str",
    "compilation_metrics",
    "bwd_compilation_metrics",
    "chromium_event",
}
_ARTIFACTS = {
    "dynamo_graph_break_reason",
    "recompile_reasons",
    "dynamo_side_effects",
    "before_pre_grad_graph",
    "inductor_post_grad_graph",
    "fx_graph_cache_hit",
    "fx_graph_cache_miss",
    "fx_graph_cache_bypass",
    "aotautograd_cache_hit",
    "aotautograd_cache_miss",
    "aotautograd_cache_bypass",
}


def problem() -> str | None:
    """The logger exists on every torch; a rename would leave it without records, which the status then shows."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Listen to the trace logger."""
    logger = logging.getLogger("torch.__trace")
    handler = _Handler(emit)
    logger.addHandler(handler)
    logger.handlers.insert(0, logger.handlers.pop())
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Handler(logging.Handler):
    def __init__(self, emit: Emit) -> None:
        super().__init__(logging.DEBUG)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        with self._emit.guarded():
            if (event := _read(record)) is not None:
                self._emit(event)


def _read(record: logging.LogRecord) -> TraceEvent | None:
    metadata = getattr(record, "metadata", {})
    kind = next((key for key in metadata if key in _EVENTS or key == "artifact"), None)
    if kind is None:
        return None
    name = metadata["artifact"].get("name") if kind == "artifact" else None
    if name is not None and name not in _ARTIFACTS:
        return None
    torch_id, attempt = _torch_id(metadata), metadata.get("attempt")
    if kind == "dynamo_start" and torch_id is not None:
        whereabouts.compile_started(torch_id, attempt or 0)
    return TraceEvent(
        kind=kind,
        name=name,
        compile_id=whereabouts.named(torch_id) if torch_id else None,
        attempt=attempt,
        data=_sited(metadata[kind]) if kind in _SYMBOLS else metadata[kind],
        payload=getattr(record, "payload", None),
        graph_id=whereabouts.graph_id(),
        epoch=whereabouts.epoch(),
        phase=whereabouts.phase(),
        at_s=time.time(),
        thread=threading.get_ident(),
    )


def _sited(data: dict[str, Any]) -> dict[str, Any]:
    """The event with the innermost frame of the user's stack in place of its stacks, whose file names are numbers."""
    from torch._logging.structured import INTERN_TABLE

    facts = {key: value for key, value in data.items() if key not in ("stack", "user_stack")}
    if not (stack := data.get("user_stack")):
        return facts
    number = stack[-1]["filename"]
    file = next((name for name, known in INTERN_TABLE.items() if known == number), None)
    return facts | {"file": file, "line": stack[-1]["line"]}


def _torch_id(metadata: dict[str, object]) -> str | None:
    """frame/recompilation, with compiled autograd's own number in front, as torch._guards.CompileId prints it."""
    if "frame_id" not in metadata:
        return f"!{metadata['compiled_autograd_id']}" if "compiled_autograd_id" in metadata else None
    prefix = f"!{metadata['compiled_autograd_id']}/" if "compiled_autograd_id" in metadata else ""
    return f"{prefix}{metadata['frame_id']}/{metadata['frame_compile_id']}"
