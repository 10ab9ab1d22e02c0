"""One step of a model, the unit that is measured: a call, or a call and its backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

Model = Callable[..., Any]
Step = Callable[[], None]


def step_of(model: Model, inputs: Sequence[Any], leaves: Sequence[Tensor] | None) -> Step:
    """A function that runs the model once and keeps nothing of it.

    With `leaves` it also runs backward and sets their gradients to None, so that every step starts without any.
    """

    def forward() -> None:
        model(*inputs)

    def forward_and_backward() -> None:
        loss_of(model(*inputs)).backward()  # type: ignore[no-untyped-call]
        for leaf in leaves or ():
            leaf.grad = None

    return forward if leaves is None else forward_and_backward


def loss_of(outputs: Any) -> Tensor:
    """The sum over all outputs that require a gradient. Raises ValueError where none does."""
    wanted = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not wanted:
        raise ValueError("backward was asked for, but no output of the model requires a gradient")
    return reduce(add, (output.sum() for output in wanted))


def gradient_leaves(loss: Tensor) -> list[Tensor]:
    """The tensors whose `.grad` a backward pass fills: the AccumulateGrad ends of the graph behind `loss`."""
    leaves, seen, front = [], set(), [loss.grad_fn]
    while front:
        node = front.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        front.extend(parent for parent, _ in node.next_functions)
    return leaves


def device_of(*items: Any) -> torch.device:
    """The CUDA device that a tensor of the items (a module's weights too) is on, else the CPU."""
    on_cuda = (tensor.device for tensor in _tensors(items) if tensor.is_cuda)
    return next(on_cuda, torch.device("cpu"))


def synchronize(device: torch.device) -> None:
    """Wait until the device is idle; a CPU always is, once the call has returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def state_kept(leaves: Iterable[Tensor], device: torch.device) -> Iterator[None]:
    """Take the gradients away while measuring, then put them and the random state back as they were."""
    gradients = [(leaf, leaf.grad) for leaf in leaves]
    for leaf, _ in gradients:
        leaf.grad = None
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        for leaf, gradient in gradients:
            leaf.grad = gradient


def _tensors(items: Any) -> Iterator[Tensor]:
    for leaf in tree_leaves(items):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, nn.Module):
            yield from leaf.parameters()
