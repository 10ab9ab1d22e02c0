"""Functions whose memory has a story, after public bug reports: each drives one compile."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def chunked(x: Tensor, w: Tensor, mask: Tensor, chunks: int = 4) -> list[Tensor]:
    """Works chunk by chunk; compiled, one kernel multiplies all chunks by the mask (pytorch#122512)."""
    tops = []
    for part in x.chunk(chunks):
        scores = part @ w
        masked = scores * mask
        tops.append((masked @ w.t()).relu())
        del scores, masked
    return tops


def drive_chunked() -> None:
    """Four score buffers of 64 × 512 floats."""
    with torch.no_grad():
        torch.compile(chunked)(torch.randn(256, 16), torch.randn(16, 512), torch.randn(64, 512))


def two_branches(x: Tensor, w: Tensor) -> Tensor:
    """Two scaled copies of one tensor come from one kernel; one of them is needed last (pytorch#188058)."""
    first = (x * 2).relu() @ w
    first = (first @ w.t()).tanh() @ w
    second = (x * 3).sigmoid() @ w
    return first + second


def drive_branches() -> None:
    """Copies of 256 × 128 floats."""
    with torch.no_grad():
        torch.compile(two_branches)(torch.randn(256, 128), torch.randn(128, 32))


def drive_late_match() -> None:
    """One block of 64 × 64 floats serves three buffers, one after the other (pytorch#145883)."""

    def late_match(x: Tensor, w: Tensor, wide: Tensor) -> Tensor:
        b = (x @ w).relu() @ w
        return ((b @ wide) @ wide.t()).tanh() @ w

    with torch.no_grad():
        torch.compile(late_match)(torch.randn(64, 64), torch.randn(64, 64), torch.randn(64, 1024))


class Checkpointed(nn.Module):
    """Three blocks that the backward computes again (pytorch#120381)."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()) for _ in range(3))
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 64) → (rows, 64)."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def drive_checkpointed() -> None:
    """A training step of 32 rows."""
    torch.compile(Checkpointed())(torch.randn(32, 64)).sum().backward()


def drive_frozen() -> None:
    """Freezing packs the weights into constants of the graph (pytorch#167199)."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        torch.compile(model)(torch.randn(4, 64))


class Gated(nn.Module):
    """Two linear layers with GELU between them, whose result the backward may find saved or compute again."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.first, self.second, self.again = nn.Linear(32, 128), nn.Linear(128, 32), again

    def tail(self, hidden: Tensor) -> Tensor:
        """(rows, 128) → (rows, 32)."""
        active = nn.functional.gelu(hidden)
        result: Tensor = self.second(active)
        return result

    def forward(self, x: Tensor) -> Tensor:
        """(rows, 32) → (rows, 32)."""
        hidden = self.first(x)
        result: Tensor = checkpoint(self.tail, hidden, use_reentrant=False) if self.again else self.tail(hidden)
        return result


def drive_gated(again: bool = False) -> None:
    """A training step of 8 rows."""
    torch.compile(Gated(again))(torch.randn(8, 32)).sum().backward()


def drive_donated() -> None:
    """A backward that writes over what the forward saved for it: sizes fit, and nobody else reads it."""

    def doubled(x: Tensor, w: Tensor) -> Tensor:
        return ((x @ w).exp() @ w).sin()

    x, w = torch.randn(64, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)
    torch.compile(doubled)(x, w).sum().backward()
