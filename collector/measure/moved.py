"""How many bytes one eager step moves: what each operator reads and writes, by shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fusionscope.collector.hook import Emit
from fusionscope.collector.measure.kernels import operators_with_kernel
from fusionscope.collector.measure.step import Step
from fusionscope.storage.records import Measurement

_METHOD = (
    "sum over the operators of one step that run a kernel: each tensor that one is given or returns counts once, by "
    "shape and dtype; not counted: what a kernel reads again or keeps aside, what a cache saves"
)
_OVERWRITES = frozenset(
    f"aten::{name}_" for name in ("copy", "fill", "zero", "normal", "uniform", "random", "bernoulli")
)
_GATHERS = frozenset(f"aten::{name}" for name in ("embedding", "index", "index_select", "gather"))


def moved_record(variant: str, step: Step, device: torch.device) -> Measurement | str:
    """The bytes that the operators of a step read and write, or why they were not counted. Nothing is raised."""
    attempt, counting = Emit("moved", lambda _: None), _Counting(operators_with_kernel(device.type.upper()))
    with attempt.guarded(), counting:
        step()
    if attempt.reason is not None:
        return f"bytes moved are not recorded: {attempt.reason}"
    return Measurement(
        variant=variant, metric="bytes_moved", median=counting.bytes, samples=1, unit="bytes", method=_METHOD
    )


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what each operator moves as it is dispatched, below autograd, the backward's too."""

    def __init__(self, operators: set[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators = operators
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator; one that only calls others is run as those (as in torch/utils/flop_counter.py)."""
        given = kwargs or {}
        if func.namespace == "aten" and func._schema.name not in self._operators:
            with self:
                parts = func.decompose(*args, **given)
            if parts is not NotImplemented:
                return parts
        result = func(*args, **given)
        if func._schema.name in self._operators:
            self.bytes += moved_bytes(func._schema, args, given, result)
        return result


def moved_bytes(schema: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> int:
    """What one operator reads and writes, each tensor once; of a table that is looked up by index what is returned."""
    arguments = {argument.name: argument for argument in schema.arguments}
    given = dict(zip(arguments, args, strict=False)) | dict(kwargs)
    unread = {name for name in given if arguments[name].is_out or (name == "self" and schema.name in _OVERWRITES)}
    changed = [value for name, value in given.items() if (alias := arguments[name].alias_info) and alias.is_write]
    read = sum(_sizes([value for name, value in given.items() if name not in unread]).values())
    written = sum(_sizes([result, changed]).values())
    if schema.name in _GATHERS:
        read -= max(0, sum(_sizes(args[:1]).values()) - written)
    return read + written


def _sizes(values: Any) -> dict[tuple[Any, ...], int]:
    """Bytes of each distinct strided tensor among the values; of an expanded one those that there are."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor) and leaf.layout == torch.strided]
    return {
        (t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride()): t.element_size()
        * prod(size for size, stride in zip(t.shape, t.stride(), strict=True) if stride or not size)
        for t in tensors
    }
