"""What a block of memory is for, told from its life alone: eager steps and snapshots have no plan."""

from __future__ import annotations


def category_of(phase: str, end: float | None, backward: tuple[float, float] | None) -> str:
    """Of a block that `phase` allocated and that ends at `end` (None: outlives the step).

    `backward` is when the first of autograd's nodes began and the last ended, None where there was none. Saved: made
    by the forward, freed while the backward runs. Gradient: made by the backward, still there when it has ended.
    """
    if phase == "optimizer":
        return "optimizer" if end is None else "intermediate"
    after = end is None or (backward is not None and end > backward[1])
    if phase == "backward":
        return "gradient" if backward is not None and after else "intermediate"
    if end is not None and backward is not None and backward[0] <= end <= backward[1]:
        return "saved"
    return "output" if after else "intermediate"
