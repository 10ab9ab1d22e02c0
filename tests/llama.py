"""A small Llama: RMS norms, rotary positions, grouped queries, a gated feed-forward, a head over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention, silu

WIDTH, HEADS, GROUPS, HIDDEN, WORDS = 64, 4, 2, 128, 256


class RMSNorm(nn.Module):
    """Each row over its root mean square, times a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """(..., WIDTH) → (..., WIDTH)."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Attention(nn.Module):
    """Causal attention, two query heads for each key head."""

    def __init__(self) -> None:
        super().__init__()
        each = WIDTH // HEADS
        self.q_proj = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * each, bias=False) for _ in range(2))
        self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(batch, tokens, WIDTH) → the same."""
        q, k, v = (
            layer(x).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = (part * cos + rotated(part) * sin for part in (q, k))
        k, v = (part.repeat_interleave(HEADS // GROUPS, 1) for part in (k, v))
        attended: Tensor = self.o_proj(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return attended


def rotated(x: Tensor) -> Tensor:
    """Halves of the last dimension swapped, the second negated."""
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


class Block(nn.Module):
    """Attention, then the gated feed-forward, each added to what it read."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.attention, self.norm = RMSNorm(), Attention(), RMSNorm()
        self.gate_proj, self.up_proj = (nn.Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(batch, tokens, WIDTH) → the same."""
        x = x + self.attention(self.attention_norm(x), cos, sin)
        y = self.norm(x)
        added: Tensor = x + self.down_proj(silu(self.gate_proj(y)) * self.up_proj(y))
        return added


class Llama(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList([Block(), Block()])
        self.norm, self.lm_head = RMSNorm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, tokens) → logits (batch, tokens, WORDS)."""
        each = WIDTH // HEADS
        pace = 10_000.0 ** (-torch.arange(0, each, 2) / each)
        angles = torch.outer(torch.arange(tokens.shape[1]), pace).repeat(1, 2)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        logits: Tensor = self.lm_head(self.norm(x))
        return logits
