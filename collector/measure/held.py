"""What is alive before a step: weights, optimizer state, gradients and inputs, each by its name."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from fusionscope.storage.records import Allocation

Named = dict[int, tuple[str, str]]  # address of a storage → category, name


def held_before(variant: str, device: torch.device, inputs: Sequence[Any]) -> list[Allocation]:
    """Every block that is alive on the device now; together they are what `alive_bytes` counts.

    On CUDA the caching allocator lists its blocks, and what no tensor of Python's holds is a workspace of a library or
    of autograd. The CPU has no such list: there the storages of the tensors that Python knows are all there is.
    """
    gc.collect()
    tensors = _tensors(device)
    named = _named(tensors, inputs)
    blocks = _cuda_blocks(device) if device.type == "cuda" else _storages(tensors)
    return [
        Allocation(
            variant=variant,
            phase="before",
            bytes=size,
            address=address,
            category=category,
            label=label,
        )
        for address, size in blocks
        for category, label in [named.get(address, _UNKNOWN[device.type])]
    ]


_UNKNOWN = {
    "cpu": ("other", "another tensor of the process"),
    "cuda": ("workspace", "held by no tensor of Python's: a workspace of a library"),
}


def _named(tensors: Sequence[Tensor], inputs: Sequence[Any]) -> Named:
    """The more telling name wins: a weight is also a tensor of the process."""
    found: Named = {_address(tensor): ("other", "another tensor of the process") for tensor in tensors}
    found |= {_address(leaf): ("input", "input of the call") for leaf in tree_leaves(inputs) if _is_dense(leaf)}
    found |= {_address(t): ("weight", "parameter") for t in tensors if isinstance(t, nn.Parameter)}
    objects = gc.get_objects()
    for item in objects:
        if issubclass(type(item), torch.optim.Optimizer):
            found |= dict(_optimizer_state(item))
    for item in objects:
        if issubclass(type(item), nn.Module):
            found |= dict(_weights(item))
    found |= {_address(t.grad): ("gradient", "gradient") for t in tensors if t.is_leaf and _is_dense(t.grad)}
    return found


def _weights(module: nn.Module) -> Iterator[tuple[int, tuple[str, str]]]:
    own = (*module._parameters.items(), *module._buffers.items())
    for name, value in own:
        if _is_dense(value):
            yield _address(value), ("weight", f"{type(module).__name__}.{name}")


def _optimizer_state(optimizer: Any) -> Iterator[tuple[int, tuple[str, str]]]:
    for state in optimizer.state.values():
        for name, value in state.items():
            if _is_dense(value):
                yield _address(value), ("optimizer", f"{type(optimizer).__name__}.{name}")


def _tensors(device: torch.device) -> list[Tensor]:
    """Exact types: subclasses such as FakeTensor, which compiling leaves behind, have no memory of their own."""
    found: Iterable[Any] = (item for item in gc.get_objects() if type(item) in (Tensor, nn.Parameter))
    return [tensor for tensor in found if tensor.device.type == device.type and _is_dense(tensor)]


def _is_dense(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and type(value) in (Tensor, nn.Parameter)
        and value.layout == torch.strided
        and not torch._is_functional_tensor(value)
    )


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _storages(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return list({_address(t): t.untyped_storage().nbytes() for t in tensors if t.untyped_storage().nbytes()}.items())


def _cuda_blocks(device: torch.device) -> list[tuple[int, int]]:
    """Address and size of the allocator's blocks that are in use, as memory_allocated() counts them."""
    index = torch.cuda.current_device() if device.index is None else device.index
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return [
        (block["address"], block["size"])
        for segment in segments
        if segment["device"] == index
        for block in segment["blocks"]
        if block["state"] != "inactive"
    ]
