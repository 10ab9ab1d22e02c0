"""Four times linear and relu, then softmax, as the PyTorch articles write it: the weights are drawn inside the call."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, relu, softmax

LOOK_FOR = (
    "Every call draws four new weight matrices: a generated kernel draws random numbers before each matrix product, "
    "and no fusion takes that work away. Compare the time with mlp_parameters."
)

ROWS, WIDTH = 1024, 512


def mlp(x: Tensor) -> Tensor:
    for _ in range(4):
        weight = torch.randn(WIDTH, WIDTH, device=x.device)
        x = relu(linear(x, weight))
    return softmax(x, dim=-1)


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return mlp, (torch.randn(ROWS, WIDTH),), {}
