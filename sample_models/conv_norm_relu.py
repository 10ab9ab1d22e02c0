"""Convolution, batch norm and relu, twice, in the default layout: Inductor moves to channels last and copies for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LOOK_FOR = (
    "The input and both weights arrive contiguous and are copied to channels last before the convolutions; norm and "
    "relu are one kernel after each of them, and the last one writes the result back in the default layout."
)

BATCH, CHANNELS, SIZE = 8, 32, 56


def conv_norm_relu(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    # Inference: running statistics make the norm a scale and a shift; frozen weights keep one graph in any grad mode.
    model = nn.Sequential(conv_norm_relu(CHANNELS, 2 * CHANNELS), conv_norm_relu(2 * CHANNELS, CHANNELS))
    return model.eval().requires_grad_(False), (torch.randn(BATCH, CHANNELS, SIZE, SIZE),), {}
