"""An expensive producer with two consumers that cannot share a loop: on a CPU lowering stores it, computed once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LOOK_FOR = (
    "On a CPU an exponential with two users counts as heavy: lowering gives it a buffer of its own, 4 MiB that "
    "two_consumers_cheap does without. A GPU inlines this one too."
)

ROWS, COLUMNS = 1024, 1024


def sums_of_gaussian(x: Tensor) -> tuple[Tensor, Tensor]:
    bell = torch.exp(-x * x)
    return bell.sum(dim=0), bell.sum(dim=1)


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return sums_of_gaussian, (torch.randn(ROWS, COLUMNS),), {}
