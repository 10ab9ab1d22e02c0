"""A chain of elementwise steps that is longer than a fusion group may be: the scheduler cuts it at its cap."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LOOK_FOR = (
    "All steps have one shape and could share one loop, yet the chain becomes two groups: "
    "a group may hold 64 scheduler nodes (max_fusion_size) and a fusion past that is refused."
)

STEPS, CELLS = 80, 65_536


def trajectory(x: Tensor) -> list[Tensor]:
    """The logistic map x <- 3.7 x (1 - x), every state kept: each is a result, so each is a scheduler node."""
    states = []
    for _ in range(STEPS):
        x = 3.7 * x * (1 - x)
        states.append(x)
    return states


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return trajectory, (torch.rand(CELLS),), {}
