"""Three programs in bfloat16, forward and backward: MLP with softmax, LayerNorm and GELU chain, transformer block.

Their kernels were compared with a real H200's, one by one; a file for `fusionscope record`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class MLPSoftmax(nn.Module):
    """Two linear layers with GELU between them, then softmax."""

    def __init__(self, width: int = 1024, hidden: int = 4096) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, width) → (rows, width)."""
        return torch.softmax(self.down(functional.gelu(self.up(x))), -1)


class NormChain(nn.Module):
    """Two LayerNorms with GELU, a residual and a gate."""

    def __init__(self, width: int = 2048) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        """Twice (rows, width) → (rows, width)."""
        gate = self.second(functional.gelu(self.first(x + residual)) * 1.5 + x)
        return torch.sigmoid(gate) * gate


class Block(nn.Module):
    """A transformer block with causal attention."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, time, width) → the same."""
        q, k, v = (self._by_head(part) for part in self.qkv(self.norm1(x)).split(x.shape[-1], -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(attended)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    def _by_head(self, part: Tensor) -> Tensor:
        batch, time, width = part.shape
        return part.view(batch, time, self.heads, width // self.heads).transpose(1, 2)


def build() -> tuple[Callable[[], None], tuple[()], None]:
    """A step of all three, each compiled by itself."""
    half: dict[str, Any] = {"dtype": torch.bfloat16}
    programs = (
        (MLPSoftmax(), (torch.randn(4096, 1024, **half),)),
        (NormChain(), (torch.randn(8192, 2048, **half, requires_grad=True), torch.randn(8192, 2048, **half))),
        (Block(), (torch.randn(8, 1024, 768, **half, requires_grad=True),)),
    )
    compiled = [(torch.compile(model.to(torch.bfloat16)), inputs) for model, inputs in programs]

    def step() -> None:
        for model, inputs in compiled:
            model(*inputs).sum().backward()

    return step, (), None
