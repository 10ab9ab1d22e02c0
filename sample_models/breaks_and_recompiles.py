"""A function that leaves the graph twice and is compiled again and again: for a new size and for a changing number."""

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LOOK_FOR = (
    "Two graph breaks in one function, a branch on data and a logging call, so three graphs; and recompilations with "
    "the guard that failed: first the batch size, then a Python float that was baked into the graph."
)

WIDTH = 256
LOGGER = logging.getLogger(__name__)


def damped(x: Tensor, rate: float) -> Tensor:
    x = torch.tanh(x) * rate
    if x.abs().max() > 0.9:  # a branch on data: the graph ends here
        x = x / 2
    LOGGER.debug("damped %d rows", len(x))  # a call that Dynamo does not trace: it ends here again
    return torch.softmax(x, dim=-1)


def drive(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    """Batches of several sizes, then a rate that falls as in a training schedule."""
    x, rate = inputs
    for rows in (8, 16, 24):
        compiled(x[:rows], rate)
    for step in range(1, 4):
        compiled(x, rate / 2**step)
    compiled(x, rate)


def build() -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    return damped, (torch.randn(32, WIDTH), 0.5), {}
