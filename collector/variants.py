"""The ways in which a model can be compiled for comparison, by the names that `--variants` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TORCHSCRIPT = "torchscript"

# name → arguments of torch.compile; TorchScript has none, since it is traced and not compiled
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    TORCHSCRIPT: {},
    "default": {"mode": None, "dynamic": None},
    "reduce-overhead": {"mode": "reduce-overhead", "dynamic": None},
    "max-autotune": {"mode": "max-autotune", "dynamic": None},
    "dynamic": {"mode": None, "dynamic": True},
}


def besides(asked: Sequence[str], mode: str | None, dynamic: bool | None) -> tuple[str, ...]:
    """Those of `asked` that are not what the run compiles anyway, in its own `mode` and `dynamic`.

    Raises ValueError where one is unknown.
    """
    if unknown := [name for name in asked if name not in VARIANTS]:
        raise ValueError(f"there is no variant {unknown[0]!r}: choose from {', '.join(VARIANTS)}")
    own = {"mode": None if mode == "default" else mode, "dynamic": dynamic}
    return tuple(name for name in dict.fromkeys(asked) if VARIANTS[name] != own)
