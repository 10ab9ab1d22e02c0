"""Four times linear and relu, then softmax, with the weights as parameters: the textbook MLP in inference."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, softmax

LOOK_FOR = (
    "The last relu and the whole softmax become one kernel and the other three relus work in place, so two "
    "activations are alive at the peak where eager holds three."
)

ROWS, WIDTH = 1024, 512


class MLP(nn.Module):
    """(rows, width) -> (rows, width); each row of the result sums to one."""

    def __init__(self, width: int = WIDTH, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = relu(layer(x))
        return softmax(x, dim=-1)


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    # Frozen weights make it inference in any grad mode, so the drive and the measurement run the same graph.
    model = MLP().requires_grad_(False)
    return model, (torch.randn(ROWS, WIDTH),), {}
