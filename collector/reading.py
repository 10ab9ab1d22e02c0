"""Plain values read out of Inductor's objects: names, bytes, kinds, origins, source lines."""

from __future__ import annotations

import linecache
import math
import re
import weakref
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from types import FunctionType
from typing import Any

from fusionscope.storage.records import GraphNode

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_LOCAL_ROOT = re.compile(r"^L\['\w+'\]\.?")  # the compiled module itself, or an argument
_GLOBAL_ROOT = re.compile(r"^G\['(\w+)'\]")  # a module that the compiled function found in its globals


def size_hint(expression: Any) -> int | None:
    """An integer for a size expression: itself, or the hint that torch compiles dynamic shapes with.

    None where it depends on data (an unbacked symbol): torch then reckons with a made-up number.
    """
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    if isinstance(expression, int):
        return expression
    if getattr(expression, "is_Integer", False):
        return int(expression)
    if free_unbacked_symbols(expression):
        return None
    sizes: Any = V.graph.sizevars
    # sizevars.size_hint was replaced by optimization_hint in torch 2.13
    hint = getattr(sizes, "optimization_hint", None) or sizes.size_hint
    value = hint(expression, fallback=None)
    return None if value is None else int(value)


def buffer_bytes(buffer: Any) -> int | None:
    """Bytes that the wrapper allocates for a buffer; None where the layout has no storage of its own."""
    from torch._inductor.utils import get_dtype_size
    from torch._inductor.virtualized import V

    if not _has_storage(buffer):
        return None
    elements = size_hint(V.graph.get_allocation_storage_size(buffer))
    return None if elements is None else elements * int(get_dtype_size(buffer.get_dtype()))


def _has_storage(buffer: Any) -> bool:
    layout = getattr(buffer, "layout", None)
    return hasattr(buffer, "get_dtype") and hasattr(layout, "size") and hasattr(layout, "dtype")


def shape_and_dtype(buffer: Any) -> tuple[tuple[str, ...] | None, str | None]:
    """The symbolic shape and the dtype of a buffer, where its layout has them."""
    if not _has_storage(buffer):
        return None, None
    return size_texts(buffer.layout.size), short_dtype(buffer.layout.dtype)


def size_texts(sizes: Any) -> tuple[str, ...]:
    """Sizes or strides as text. Inductor's are sympy numbers, which are slow to print and often the same."""
    return tuple(map(_size_text, sizes))


@lru_cache(4096)
def _size_text(size: Any) -> str:
    return str(size)


@cache
def short_dtype(dtype: Any) -> str:
    """float32, not torch.float32."""
    return str(dtype).removeprefix("torch.")


def node_kind(node: Any) -> str:
    """pointwise, reduction, template, extern, or nop: a node that runs nothing, like an item of a call's tuple."""
    if node.is_template():
        return "template"
    if type(node).__name__ == "NopKernelSchedulerNode" or type(node.node).__name__ == "MultiOutput":
        return "nop"
    if node.is_extern():
        return "extern"
    return "reduction" if node.is_reduction() else "pointwise"


def group_kind(node: Any) -> str:
    """What made a node of the final schedule a group: see FusionGroup.kind.

    Classes of torch/_inductor/scheduler.py; nested reductions came with torch 2.13. A foreach operation and a combo
    kernel share a class: only the combo kernel is split by the custom partition algorithm.
    """
    match type(node).__name__:
        case "ForeachKernelSchedulerNode":
            return "combo" if node.use_custom_partition_algo else "foreach"
        case "FusedMixOrderReductions":
            return "mix_order"
        case "FusedNestedReductions":
            return "nested"
    return "fused" if len(node.get_nodes()) > 1 else "single"


def scheduled(schedule: Any) -> tuple[str, ...]:
    """The scheduler nodes that a kernel is generated for, by name.

    A template passes its fused node, a loop kernel a list that also holds markers (EnableReduction).
    """
    parts = schedule.get_nodes() if hasattr(schedule, "get_nodes") else schedule
    nodes = [node for part in parts if hasattr(part, "get_nodes") for node in part.get_nodes()]
    return tuple(dict.fromkeys(node.get_name() for node in nodes))


def flops(node: Any) -> int | None:
    """Floating-point operations of a library or template call, by torch's own formulas; None where it has none.

    Not node.estimate_flops(), which also bumps torch's flop_count counter. The formulas run the operator on fake
    tensors, a few milliseconds each, so calls of the same shapes are counted once.
    """
    from torch._inductor.fx_utils import count_flops_fx
    from torch._inductor.virtualized import V

    origin = _call_of(node.node) if node.is_extern() or node.is_template() else None
    if origin is None:
        return None
    counted = _flops.setdefault(V.graph, {})
    call = _call_signature(origin)
    if call not in counted:
        count = count_flops_fx(origin)
        counted[call] = None if count is None else size_hint(getattr(getattr(count, "node", None), "expr", count))
    return counted[call]


def _call_of(kernel: Any) -> Any | None:
    """The FX call of a library or template kernel; one with several results has it among its origins only.

    GraphLowering.run_node (torch/_inductor/graph.py) notes an origin_node for a single result.
    """
    operator = getattr(kernel, "op_overload", None)
    asked = (node for node in kernel.get_origins() if operator is not None and node.target is operator)
    return kernel.get_origin_node() or next(asked, None)


# per graph, because a symbolic size stands for another number in another graph
_flops: weakref.WeakKeyDictionary[Any, dict[tuple[str, ...], int | None]] = weakref.WeakKeyDictionary()


def _call_signature(origin: Any) -> tuple[str, ...]:
    """An FX call without the names of its operands: operator, shapes in and out, and the other arguments."""
    import torch

    operands = [value for value in origin.args if not isinstance(value, torch.fx.Node)]
    shapes = [getattr(value.meta.get("val"), "shape", None) for value in (*origin.all_input_nodes, origin)]
    return str(origin.target), str(shapes), str(operands), str(origin.kwargs)


def origins(node: Any) -> tuple[str, ...]:
    """FX nodes of the post_grad graph that a scheduler node computes, in graph order where it is known."""
    found = {origin for part in node.get_nodes() if part.node is not None for origin in part.node.get_origins()}
    return tuple(origin.name for origin in sorted(found, key=_position))


def _position(fx_node: Any) -> Any:
    return getattr(fx_node, "_sort_key", ()), fx_node.name


def accessed(dependencies: Any) -> dict[str, int | None]:
    """Bytes that a set of memory dependencies touches of each buffer; None where that depends on data.

    A WeakDep touches nothing: it keeps a node behind another (torch/_inductor/dependencies.py calls it one byte).
    """
    sizes: dict[str, int | None] = {}
    for dep in (dep for dep in dependencies if type(dep).__name__ != "WeakDep"):
        size, known = _dependency_size(dep), sizes.get(dep.name, 0)
        sizes[dep.name] = None if size is None or known is None else max(size, known)
    return sizes


def total(sizes: dict[str, int | None]) -> int | None:
    """Bytes of all of them; None when one is not known."""
    known = [size for size in sizes.values() if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _dependency_size(dep: Any) -> int | None:
    """Bytes of one dependency; each is met as a read, as a write and along its edges, and is sized once."""
    from torch._inductor.virtualized import V

    known = _sizes.setdefault(V.graph, {})
    if dep not in known:
        whole = None if dep.has_unbacked_symbols() else int(V.graph.get_dep_size_hint(dep))
        known[dep] = whole if whole is None or not dep.is_indirect() else min(whole, _reached(dep) or whole)
    return known[dep]


def _reached(dep: Any) -> int | None:
    """Bytes that an index made of data can reach, one element an access: of an embedding its rows, not its table.

    Inductor counts the whole buffer (MemoryDep.get_numel, torch/_inductor/dependencies.py).
    """
    from torch._inductor.virtualized import V

    sizes = [size for part in dep.size if (size := size_hint(part)) is not None]
    return math.prod(sizes) * int(V.graph.get_dtype(dep.name).itemsize) if len(sizes) == len(dep.size) else None


_sizes: weakref.WeakKeyDictionary[Any, dict[Any, int | None]] = weakref.WeakKeyDictionary()


@lru_cache(4096)  # of the few nodes between two lines of the model
def source_of(stack_trace: str | None) -> tuple[str | None, int | None, str | None]:
    """File, line and text of the innermost frame of an FX node's stack trace that is not torch's own.

    A torch function mode, such as `with torch.device(…)`, is traced through and stands innermost.
    """
    return users_line([(frame["file"], int(frame["line"])) for frame in _FRAME.finditer(stack_trace or "")])


def users_line(frames: Sequence[tuple[str, int]]) -> tuple[str | None, int | None, str | None]:
    """File, line and text of the last of the frames that is not torch's own, or of the last one."""
    outside = [frame for frame in frames if not frame[0].startswith(_torch_folder())]
    if not frames:
        return None, None, None
    file, line = (outside or frames)[-1]
    return file, line, linecache.getline(file, line).strip() or None


@cache
def _torch_folder() -> str:
    import torch

    return f"{Path(torch.__file__).parent}/"


def module_path(node: Any) -> str | None:
    """Dotted path of the module that an FX node came from, as in L['self'].layers.0 or G['net'].layers.0."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack")
    if not stack:
        return None
    path = list(stack.values())[-1][0]
    return _GLOBAL_ROOT.sub(r"\1", _LOCAL_ROOT.sub("", path)) or None


def traced_from(node: Any) -> str | None:
    """The node of Dynamo's graph behind this one: the root of its provenance (torch/fx/traceback.py, NodeSource)."""
    source = next(iter(node.meta.get("from_node") or ()), None)
    while source is not None and source.from_node:
        source = source.from_node[0]
    return source.name if source is not None else None


def tensor_value(node: Any) -> Any | None:
    """The example tensor of an FX node, or None; Dynamo's graph has it by another name."""
    import torch

    value = node.meta.get("val", node.meta.get("example_value"))
    return value if isinstance(value, torch.Tensor) else None


def holds_tensors(node: Any) -> bool:
    """Whether an FX node's value is a tensor or several, and no symbol or opaque object."""
    import torch

    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) or (
        isinstance(value, (tuple, list)) and all(isinstance(part, torch.Tensor) for part in value)
    )


def graph_node(
    graph_id: str, position: int, node: Any, size: int | None, *, recomputed: bool | None = None
) -> GraphNode:
    """An FX node with the shape of its value, its module and its source line; `size` in bytes."""
    file, line, text = source_of(node.meta.get("stack_trace"))
    value = tensor_value(node)
    return GraphNode(
        graph_id=graph_id,
        node=node.name,
        position=position,
        op=node.op,
        target=_target(node.target),
        shape=None if value is None else tuple(str(size) for size in value.shape),
        stride=_strides(value),
        dtype=None if value is None else short_dtype(value.dtype),
        bytes=size,
        module_path=module_path(node),
        file=file,
        line=line,
        source_text=text,
        seq_nr=_sequence(node.meta.get("seq_nr")),
        recomputed=recomputed,
        original=_operator(node.meta.get("original_aten")),
    )


def _target(target: Any) -> str:
    """What a node calls, and by its qualified name what would print with its address."""
    from torch.fx.node import _get_qualified_name

    if isinstance(target, FunctionType):
        return f"{target.__module__}.{target.__qualname__}"
    return _get_qualified_name(target) if " at 0x" in str(target) else str(target)


def _strides(value: Any) -> tuple[str, ...] | None:
    strided = value is not None and str(value.layout) == "torch.strided"
    return tuple(str(step) for step in value.stride()) if strided else None


def _operator(overload: Any) -> str | None:
    """aten::addmm, as the dispatcher and the profiler name an operator; one of higher order has no overloads."""
    return None if overload is None else str(overload.name()).partition(".")[0]


def _sequence(number: int | None) -> int | None:
    return number if number is not None and number >= 0 else None  # -1: traced without autograd
