"""A cheap producer with two consumers that cannot share a loop: lowering computes it twice rather than store it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LOOK_FOR = (
    "The sine never gets a buffer: lowering inlines it into both sums, before the scheduler sees it, "
    "and the generated code computes it twice."
)

ROWS, COLUMNS = 1024, 1024


def sums_of_sine(x: Tensor) -> tuple[Tensor, Tensor]:
    wave = torch.sin(x)
    return wave.sum(dim=0), wave.sum(dim=1)


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return sums_of_sine, (torch.randn(ROWS, COLUMNS),), {}
