"""A training step of one transformer block: a forward and a backward graph that share what was saved between them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

LOOK_FOR = (
    "Two graphs from one function: what forward saves for backward outlives the forward, and the cheap gelu is not "
    "saved but computed again in backward. The second layer norm and the residual sum before it are one kernel."
)
BACKWARD = True

BATCH, TOKENS, WIDTH, HEADS = 4, 128, 256, 4


class Block(nn.Module):
    """A pre-norm transformer block, (batch, tokens, width) -> the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return mixed

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        mlp: Tensor = self.down(gelu(self.up(self.norm_mlp(x)), approximate="tanh"))
        return x + mlp


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return Block(WIDTH, HEADS), (torch.randn(BATCH, TOKENS, WIDTH),), {}
