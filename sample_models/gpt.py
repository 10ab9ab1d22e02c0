"""A small GPT in training: token and position embeddings, transformer blocks, tied head, cross entropy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, linear, scaled_dot_product_attention

LOOK_FOR = (
    "The blocks repeat, so some kernels serve several of them. Eager's peak is where the loss meets the logits of all "
    "tokens; compiled code turns the logits into their gradient in place, and the peak moves into the blocks."
)
BACKWARD = True


@dataclass(frozen=True)
class GPTConfig:
    """The default is sized for two CPU cores."""

    layers: int = 2
    heads: int = 4
    width: int = 128
    tokens: int = 64
    batch: int = 4
    vocabulary: int = 2048


class Block(nn.Module):
    """A pre-norm transformer block, (batch, tokens, width) -> the same."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm_attention = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.norm_mlp = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

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


class GPT(nn.Module):
    """Token ids and targets, both (batch, tokens) int64 -> the mean cross entropy, a scalar."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.tokens, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.token(ids) + self.position.weight
        for block in self.blocks:
            x = block(x)
        logits = linear(self.norm(x), self.token.weight)
        return cross_entropy(logits.flatten(0, 1), targets.flatten())


def build(config: GPTConfig | None = None) -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    config = config or GPTConfig()
    shape = (config.batch, config.tokens)
    ids, targets = (torch.randint(config.vocabulary, shape) for _ in range(2))
    return GPT(config), (ids, targets), {}
