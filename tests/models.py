"""Small models that the tests record: each makes the compiler take the decisions that its test asks about."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Linear and relu four times, then softmax: the textbook example, with its weights as parameters."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, width)."""
        for layer in self.layers:
            x = torch.relu(layer(x))
        return torch.softmax(x, -1)


def everything(x: Tensor, weight: Tensor) -> Tensor:
    """Gives every hook something to record: a layout copy, fusions, a refusal, an inlined producer, a library call."""
    y = nn.functional.conv2d(x, weight, padding=1)
    z = torch.sin(y)
    return torch.softmax(y + z, 1) + z.sum((2, 3), keepdim=True)


def everything_inputs() -> tuple[Tensor, Tensor]:
    """An image batch (2, 32, 14, 14) and a weight (32, 32, 3, 3)."""
    torch.manual_seed(0)
    return torch.randn(2, 32, 14, 14), torch.randn(32, 32, 3, 3)


class Shapes(nn.Module):
    """Breaks at a print, and compiles again when the number of rows changes."""

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, width)."""
        y = torch.sin(x) * 2
        print(end="")  # noqa: T201 — the break
        return torch.cos(y) + x


def scaled(x: Tensor) -> Tensor:
    """A full reduction and a loop that needs it: the C++ backend refuses the pair without a word."""
    return x / x.abs().amax()
