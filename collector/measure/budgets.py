"""Memory budgets of the partitioner, tried on the joint graphs of a training step without compiling anything."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config, partitioners
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import _recursive_joint_graph_passes
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_utils import count_flops_fx
from torch._inductor.virtualized import V

from fusionscope.collector.measure.step import Model
from fusionscope.storage.records import MemoryBudget

BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.0)
MOST_NODES = 2000  # of a joint graph; a budget below 1 is a knapsack problem over all of them
_ALIKE = 64  # entries that Dynamo may keep of the same code while this adds one more


def budget_records(model: Model, inputs: Sequence[Any], joints: Sequence[str]) -> Iterator[MemoryBudget]:
    """What each budget would save and compute again; `joints` names the joint graphs in the order of their compiles.

    The model is traced once more and its graphs are run as they are. What the model raises is not caught.
    """
    tried: list[list[MemoryBudget]] = []

    def partition(joint: Any, arguments: Any, **options: Any) -> Any:
        joint = _as_inductor_has_it(joint)
        # the function behind a hook on it: these trials are not the partition of a compile
        cut = inspect.unwrap(partitioners.min_cut_rematerialization_partition)
        name = joints[len(tried)] if len(tried) < len(joints) else ""
        budgets = BUDGETS if len(joint.graph.nodes) <= MOST_NODES else ()
        tried.append([_tried(cut, joint, arguments, options, name, budget) for budget in budgets])
        return cut(joint, arguments, **options)

    settings: Any = {"fw_compiler": _as_it_is, "bw_compiler": _as_it_is, "partition_fn": partition}
    backend = aot_autograd(**settings, decompositions=select_decomp_table())
    with torch._dynamo.config.patch(recompile_limit=_ALIKE):
        torch.compile(model, backend=backend)(*inputs)
    for records in tried:
        yield from (record for record in records if record.graph_id)


def _as_inductor_has_it(joint: Any) -> Any:
    """After the passes over the joint graph that come before its partition (partition_fn in compile_fx.py)."""
    with V.set_fake_mode(detect_fake_mode([node.meta.get("val") for node in joint.graph.nodes])):
        return _recursive_joint_graph_passes(joint, skip_invoke_subgraph=True)


def _as_it_is(graph: Any, inputs: Any) -> Any:
    return make_boxed_func(graph.forward)


def _tried(
    cut: Callable[..., Any], joint: Any, arguments: Any, options: dict[str, Any], name: str, budget: float
) -> MemoryBudget:
    with config.patch(activation_memory_budget=budget), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about a class of its own that is copied
        forward, backward = cut(copy.deepcopy(joint), arguments, **options)
    saved = _saved(forward, options["num_fwd_outputs"])
    again = [node for node in _calls(backward) if node.name in {one.name for one in _calls(forward)}]
    return MemoryBudget(
        graph_id=name,
        budget=budget,
        saved_bytes=sum(int(partitioners._size_of(node)) for node in saved),
        saved_values=len(saved),
        recomputed_ops=len(again),
        recomputed_flops=sum(_flops(again)),
    )


def _saved(forward: Any, outputs: int) -> list[Any]:
    """Values that the forward hands to the backward, without its own inputs."""
    returned = next(node for node in forward.graph.nodes if node.op == "output").args[0][outputs:]
    nodes = {node.name: node for node in returned if isinstance(node, torch.fx.Node) and node.op != "placeholder"}
    return [node for node in nodes.values() if isinstance(node.meta.get("val"), torch.Tensor)]


def _calls(graph: Any) -> list[Any]:
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def _flops(nodes: Iterable[Any]) -> Iterator[int]:
    """By torch's own formulas; operators without one, such as pointwise ones, count as none."""
    for node in nodes:
        count = count_flops_fx(node)
        if isinstance(count, int):
            yield count
