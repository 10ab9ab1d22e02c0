"""The model through `torch.jit.trace`: the graph of the generation before torch.compile, and what its fuser made."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import torch
from torch.jit._trace import TracerWarning

from fusionscope.collector import reading
from fusionscope.collector.hook import Emit
from fusionscope.collector.measure.step import Model
from fusionscope.storage.records import Graph, GraphEdge, GraphNode

TRACED, OPTIMISED = "torchscript", "torchscript.optimised"  # the names of the two graphs
NO_FUSER = "TorchScript fuses on a GPU, and on a CPU only in a build of torch with LLVM: it fused nothing here"
_WARM_UP = 3  # calls: one is profiled, the next specialised (torch/csrc/jit/runtime/profiling_graph_executor_impl.cpp)
_FRAME = re.compile(r"^(?P<file>.+)\((?P<line>\d+)\): ", re.M)  # innermost first
_OPS = {
    "prim::Constant": "constant",
    "prim::GetAttr": "get_attr",
    "prim::Param": "placeholder",
    "prim::Return": "output",
}


@dataclass(frozen=True, slots=True)
class Traced:
    """A model that torch.jit.trace could trace."""

    module: Model
    baked_in: tuple[str, ...]  # warnings of the tracer: what holds only for these inputs, with its line


def trace(model: Model, inputs: Sequence[Any]) -> Traced | str:
    """Run `model` once and keep what the tracer saw, or say why it could not. Nothing is raised."""
    attempt = Emit("torchscript", lambda _: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TracerWarning)
        with attempt.guarded():
            module = torch.jit.trace(  # type: ignore[no-untyped-call]
                model, tuple(inputs), check_trace=False
            )
    if attempt.reason is not None:
        sentence = attempt.reason.partition(". ")[0].rstrip(".")  # what follows advises, and may be cut short
        return f"torch.jit.trace cannot trace this model: {sentence}"
    told = [warning for warning in caught if issubclass(warning.category, TracerWarning)]
    return Traced(module, tuple(f"{told.filename}:{told.lineno}: {told.message}" for told in told))


def graph_records(traced: Traced | str, inputs: Sequence[Any]) -> Iterator[Graph | GraphNode | GraphEdge]:
    """The traced graph, and the one that TorchScript's executor made of it; where there is none, why."""
    if isinstance(traced, str):
        yield Graph(graph_id=TRACED, stage="torchscript", reason=traced)
        return
    module: Any = traced.module
    yield from _graph(TRACED, module.inlined_graph, "\n".join(traced.baked_in) or None)
    yield from _optimised(traced.module, inputs)


def _optimised(module: Model, inputs: Sequence[Any]) -> Iterator[Graph | GraphNode | GraphEdge]:
    on_gpu = any(isinstance(given, torch.Tensor) and given.is_cuda for given in inputs)
    if not (on_gpu or torch._C._jit_can_fuse_on_cpu()):
        yield Graph(graph_id=OPTIMISED, stage="torchscript", reason=NO_FUSER)
        return
    attempt = Emit("torchscript", lambda _: None)
    with attempt.guarded():
        for _ in range(_WARM_UP):
            module(*inputs)
        yield from _graph(OPTIMISED, torch._C._last_executed_optimized_graph())
    if attempt.reason is not None:
        reason = f"TorchScript could not run what it traced: {attempt.reason}"
        yield Graph(graph_id=OPTIMISED, stage="torchscript", reason=reason)


def _graph(graph_id: str, graph: Any, reason: str | None = None) -> Iterator[Graph | GraphNode | GraphEdge]:
    yield Graph(graph_id=graph_id, stage="torchscript", code=str(graph), reason=reason)
    position = count()
    for row in _rows(graph_id, graph):
        yield replace(row, position=next(position)) if isinstance(row, GraphNode) else row


def _rows(graph_id: str, graph: Any, inside: str = "") -> Iterator[GraphNode | GraphEdge]:
    """Nodes and edges of a graph and of those inside its nodes, such as fusion groups; names of these have a path."""
    maker: dict[str, str] = {}  # value → node
    for given in graph.inputs():
        maker[given.debugName()] = f"{inside}{given.debugName()}"
        yield _node(graph_id, maker[given.debugName()], "prim::Param", [given])
    for node in (*_nodes(graph), graph.return_node()):
        results = list(node.outputs())
        name = inside + (results[0].debugName() if results else f"{node.kind()}.{len(maker)}")
        maker |= {result.debugName(): name for result in results}
        yield _node(graph_id, name, node.kind(), results, node.sourceRange(), node.scopeName())
        for source in dict.fromkeys(maker.get(value.debugName()) for value in node.inputs()):
            if source is not None:
                yield GraphEdge(graph_id=graph_id, src=source, dst=name)
        if node.hasAttribute("Subgraph"):
            yield from _rows(graph_id, node.g("Subgraph"), f"{name}/")


def _nodes(block: Any) -> Iterator[Any]:
    """The nodes of a block and of the branches and loops inside it."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _node(graph_id: str, name: str, kind: str, values: Sequence[Any], source: str = "", scope: str = "") -> GraphNode:
    """One node; `values` are what it gives, of which the first has the shape that is told."""
    frames = [(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(source)]
    file, line, text = reading.users_line(frames[::-1])
    shape, stride, dtype = _tensor(values[0].type()) if values else (None, None, None)
    return GraphNode(
        graph_id=graph_id,
        node=name,
        position=0,
        op=_OPS.get(kind, "call_function"),
        target=kind,
        shape=shape,
        stride=stride,
        dtype=dtype,
        module_path=scope.rpartition("/")[2].removeprefix("__module.") or None,
        file=file,
        line=line,
        source_text=text,
    )


def _tensor(kind: Any) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None, str | None]:
    """Shape, strides and dtype of a tensor's type, as far as the trace knows them; other types have none."""
    if kind.kind() != "TensorType":
        return None, None, None
    shape, stride = (None if sizes is None else tuple(map(str, sizes)) for sizes in (kind.sizes(), kind.strides()))
    return shape, stride, None if kind.dtype() is None else reading.short_dtype(kind.dtype())
