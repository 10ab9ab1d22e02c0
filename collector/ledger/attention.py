"""Structured-trace events → attention that was asked for by name and is no attention kernel any more."""

from __future__ import annotations

from collections.abc import Iterator

from fusionscope.collector.observations import TraceEvent
from fusionscope.storage.records import PassChange

_ASKED = "scaled_dot_product_attention("  # as Dynamo writes the user's call
_KERNEL = "torch.ops.aten._scaled_dot_product_"  # of a fused kernel, whichever the backend
_TRACED = ("aot_joint_graph", "aot_inference_graph")


class Attention:
    """Counts the calls of a compile before and after AOTAutograd decomposed what no kernel takes."""

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # compile → calls

    def take(self, event: TraceEvent) -> Iterator[PassChange]:
        """The calls that vanished, once the compile is traced to operators."""
        if event.compile_id is None:
            return
        if event.kind == "dynamo_output_graph":
            self._asked[event.compile_id] = (event.payload or "").count(_ASKED)
        elif event.kind in _TRACED and (asked := self._asked.pop(event.compile_id, 0)):
            kept = sum(_is_forward(line) for line in (event.payload or "").splitlines())
            if kept < asked:
                yield PassChange(
                    graph_id=f"{event.compile_id}.{'joint' if event.kind == _TRACED[0] else 'aot_inference'}",
                    pass_name="decomposition",
                    pattern="scaled_dot_product_attention",
                    outcome="vanished",
                    reason="no attention kernel takes these inputs, so it became matrix products and a softmax",
                    count=asked - kept,
                )


def _is_forward(line: str) -> bool:
    return _KERNEL in line and "_backward" not in line
