"""Inductor's graph as the scheduler met it and left it: FX nodes, scheduler nodes, dependencies, groups, buffers.

_compile_fx_inner enters compile_fx.DebugContext itself, so the class is replaced, not the handler. Its ir_pre_fusion
and ir_post_fusion run inside Scheduler._init, the second one after every reordering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import estimate, reading, whereabouts
from fusionscope.collector.hook import Emit, unmet
from fusionscope.collector.observations import (
    GraphConstant,
    GraphInput,
    GraphOutputs,
    NodeAccesses,
    NodeTraced,
    ScheduledBuffer,
)
from fusionscope.storage.records import FusionGroup, GraphEdge, GraphNode, IrEdge, IrNode, MemoryPoint

NAME = "inductor_graph"
RECORDS = (
    GraphNode,
    NodeTraced,
    GraphEdge,
    IrNode,
    NodeAccesses,
    IrEdge,
    FusionGroup,
    ScheduledBuffer,
    GraphInput,
    GraphConstant,
    GraphOutputs,
    MemoryPoint,
)
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.compile_fx:DebugContext": (),
    "torch._inductor.debug:DebugContext.__getattr__": ("name",),
    "torch._inductor.memory:prepare_planning_info": (),
    "torch._inductor.memory:estimate_peak_memory_allocfree": (),
}


def problem() -> str | None:
    """The callbacks reach a DebugContext by name (V.debug.ir_pre_fusion)."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Let compile_fx make DebugContexts that tell us before they do what they did."""
    import torch._inductor.compile_fx

    module: Any = torch._inductor.compile_fx
    found = module.DebugContext
    module.DebugContext = _observing(found, emit)
    try:
        yield
    finally:
        module.DebugContext = found


def _observing(base: Any, emit: Emit) -> Any:
    def forward(context: Any, name: str, nodes: Any) -> None:
        callback: Callable[[Any], None] | None = base.__getattr__(context, name)
        if callback:  # None when torch's own trace.enabled formatter failed
            callback(nodes)

    class ObservingDebugContext(base):  # type: ignore[misc]
        def ir_pre_fusion(self, nodes: Any) -> None:
            with emit.guarded():
                _emit_graph(emit, nodes)
            forward(self, "ir_pre_fusion", nodes)

        def ir_post_fusion(self, nodes: Any) -> None:
            with emit.guarded():
                _emit_schedule(emit, nodes)
            forward(self, "ir_post_fusion", nodes)

    return ObservingDebugContext


def _emit_graph(emit: Emit, nodes: Any) -> None:
    lowering = whereabouts.graph()
    if lowering is None:
        return
    graph_id = whereabouts.name_of(lowering)
    for position, node in enumerate(lowering.graph.nodes):
        emit(reading.graph_node(graph_id, position, node, _value_bytes(reading.tensor_value(node))))
        if (source := reading.traced_from(node)) is not None:
            emit(NodeTraced(graph_id, node.name, source))
        for source in node.all_input_nodes:
            emit(GraphEdge(graph_id=graph_id, src=source.name, dst=node.name))
    for position, node in enumerate(nodes):
        accesses = _accesses(graph_id, node)
        emit(accesses)
        emit(_ir_node(position, node, accesses))
    _emit_edges(emit, graph_id, nodes)


def _accesses(graph_id: str, node: Any) -> NodeAccesses:
    """By the names that the wrapper uses: of a buffer that is updated in place the one that it was made under."""
    real = node.scheduler.mutation_real_name
    written = {real.get(name, name): size for name, size in reading.accessed(node.read_writes.writes).items()}
    loop = not (node.is_extern() or node.is_template())
    # a scatter also "reads" all of its target, so that it stays behind the target's other users (StarDep)
    reads = [d for d in node.read_writes.reads if not (loop and d.name in written and type(d).__name__ == "StarDep")]
    read = {real.get(name, name): size for name, size in reading.accessed(reads).items()}
    return NodeAccesses(graph_id, node.get_name(), read, written)


def _value_bytes(value: Any) -> int | None:
    if value is None:
        return None
    elements = reading.size_hint(value.numel() if isinstance(value.numel(), int) else value.numel().node.expr)
    return None if elements is None else elements * int(value.element_size())


def _ir_node(position: int, node: Any, accesses: NodeAccesses) -> IrNode:
    return IrNode(
        graph_id=accesses.graph_id,
        ir_node=accesses.ir_node,
        kind=reading.node_kind(node),
        target=getattr(node.node, "python_kernel_name", None),
        bytes_read=reading.total(accesses.read),
        bytes_written=reading.total(accesses.written),
        flops=reading.flops(node),
        origins=reading.origins(node),
        buffers=tuple(node.get_buffer_names()),
        position=position,
    )


def _emit_edges(emit: Emit, graph_id: str, nodes: Any) -> None:
    writers = {buffer: node.get_name() for node in nodes for buffer in node.get_buffer_names()}
    for node in nodes:
        for dep in node.read_writes.reads:
            writer = writers.get(dep.name)
            if writer is not None and writer != node.get_name():
                size = reading.total(reading.accessed([dep]))
                emit(IrEdge(graph_id=graph_id, src=writer, dst=node.get_name(), buffer=dep.name, bytes=size))


def _emit_schedule(emit: Emit, nodes: Any) -> None:
    lowering = whereabouts.graph()
    if lowering is None:
        return
    graph_id = whereabouts.name_of(lowering)
    for position, node in enumerate(nodes):
        members = tuple(part.get_name() for part in node.get_nodes())
        kind = reading.group_kind(node)
        emit(FusionGroup(graph_id=graph_id, group_id=node.get_name(), members=members, position=position, kind=kind))
    _emit_buffers(emit, graph_id, lowering)
    for point in estimate.timeline(graph_id, nodes, lowering):
        emit(point)


def _emit_buffers(emit: Emit, graph_id: str, lowering: Any) -> None:
    for name, buffer in lowering.scheduler.name_to_buf.items():
        shape, dtype = reading.shape_and_dtype(buffer.node)
        writer = buffer.defining_op.get_name() if buffer.defining_op else None
        users = tuple(user.get_name() for user in buffer.users)
        size = reading.buffer_bytes(buffer.node)
        emit(ScheduledBuffer(graph_id, name, size, shape, dtype, writer, _tuple_of(buffer.node), users))
    static = _static_inputs(lowering)
    for name, value in lowering.graph_inputs.items():
        if (storage := _input_buffer(value)) is not None:
            shape, dtype = reading.shape_and_dtype(storage)
            emit(GraphInput(graph_id, name, reading.buffer_bytes(storage), shape, dtype, static=name in static))
    for name, value in lowering.constants.items():
        emit(_constant(graph_id, name, value))
    output = next(iter(reversed(lowering.graph.nodes)))
    nodes = tuple(str(getattr(result, "name", "")) for result in output.args[0])
    emit(GraphOutputs(graph_id, tuple(lowering.get_output_names()), _user_visible(lowering, output), nodes))


def _constant(graph_id: str, name: str, value: Any) -> GraphConstant:
    """A packed weight (layout torch._mkldnn) has a shape of its own making and does not tell its bytes."""
    strided = str(value.layout) == "torch.strided"
    shape = tuple(str(size) for size in value.shape) if strided else None
    size = value.numel() * value.element_size() if strided else None
    return GraphConstant(graph_id, name, size, shape, reading.short_dtype(value.dtype))


def _tuple_of(node: Any) -> str | None:
    """The library call whose tuple this MultiOutput takes an item of."""
    if type(node).__name__ != "MultiOutput":
        return None
    return str(node.inputs[0].get_name())


def _input_buffer(value: Any) -> Any | None:
    storage = getattr(value, "data", None)  # TensorBox -> StorageBox -> InputBuffer; symbols and generators have none
    buffer = getattr(storage, "data", None)
    return buffer if hasattr(buffer, "layout") else None


def _static_inputs(lowering: Any) -> set[str]:
    """Inputs whose address stays, parameters and module buffers; a backward has its forward's names for them."""
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    indices = getattr(context.fw_metadata if context else None, "static_input_indices", None) or ()
    names = list(lowering.graph_input_names)
    if whereabouts.direction_of(lowering) == "backward":
        return {f"primals_{i + 1}" for i in indices}
    return {names[i] for i in indices if i < len(names)}


def _user_visible(lowering: Any, output: Any) -> tuple[str, ...] | None:
    """Outputs that reach the user, as buffer names; None where torch does not say (a backward)."""
    indices = output.meta.get("user_visible_output_idxs")
    if indices is None:
        return None
    results = [lowering.graph_outputs[i] for i in indices if i < len(lowering.graph_outputs)]
    return tuple(name for result in results if (name := result.maybe_get_name()))  # an integer has no buffer
