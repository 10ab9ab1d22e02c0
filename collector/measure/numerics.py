"""How far a variant's results are from eager's: outputs, and with a backward pass the gradients too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from fusionscope.collector.measure.step import Model, loss_of
from fusionscope.storage.records import Measurement

CHUNK = 1 << 24  # elements compared at a time, which bounds the memory that comparing takes
_EXACT = (0.0, 0.0)
_TOLERANCES = {  # dtype → relative and absolute: the table of torch.testing.assert_close
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
}


class NotComparable(Exception):
    """The results of two variants cannot be compared; the message says why."""


@dataclass
class Errors:
    """The largest differences over all elements, and how many elements differ by more than their dtype allows."""

    absolute: float = 0.0
    relative: float = 0.0
    elements: int = 0
    beyond: int = 0


def results_of(model: Model, inputs: Sequence[Any], leaves: Sequence[Tensor] | None) -> list[Tensor]:
    """Copies of a call's output tensors; with `leaves` also of the gradients, which are set to None again."""
    torch.manual_seed(0)
    outputs = model(*inputs)
    results = [leaf.detach().clone() for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
    if leaves is not None:
        loss_of(outputs).backward()  # type: ignore[no-untyped-call]
        results += [leaf.grad.detach().clone() for leaf in leaves if leaf.grad is not None]
        for leaf in leaves:
            leaf.grad = None
    return results


def random_state(device: torch.device) -> Tensor:
    """The state of the random numbers that a model on the device may draw."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def numeric_records(variant: str, results: list[Tensor], eager: list[Tensor]) -> Iterator[Measurement]:
    """The differences as measurements. Raises NotComparable where the results are not of the same shapes."""
    if [result.shape for result in results] != [result.shape for result in eager]:
        raise NotComparable("the results have other shapes than eager's")
    found = Errors()
    for result, expected in zip(results, eager, strict=True):
        add_errors(found, result, expected)
    if found.elements == 0:
        return
    compared = f"{found.elements:,} elements of {_dtypes(eager)}"
    how = f"every tensor that a call returns or leaves as a gradient, against eager's: {compared}"
    share = found.beyond / found.elements
    for metric, value, unit, remark in (
        ("max_abs_error", found.absolute, "1", ""),
        ("max_rel_error", found.relative, "1", "; where eager exceeds the absolute tolerance"),
        (
            "beyond_tolerance",
            share,
            "share",
            "; |difference| > atol + rtol |eager|, as torch.testing.assert_close has it",
        ),
    ):
        yield Measurement(variant=variant, metric=metric, median=value, unit=unit, method=how + remark)


def add_errors(found: Errors, result: Tensor, expected: Tensor) -> None:
    """Take two tensors of equal shape into account; NaN equals NaN, and anything else differs from it without end."""
    rtol, atol = _TOLERANCES.get(expected.dtype, _EXACT)
    wide = torch.promote_types(expected.dtype, torch.float32)
    pairs = zip(torch.split(result.reshape(-1), CHUNK), torch.split(expected.reshape(-1), CHUNK), strict=True)
    for a, e in ((a.to(wide), e.to(wide)) for a, e in pairs):
        same = (a == e) | (a.isnan() & e.isnan())
        difference = torch.where(same, 0.0, (a - e).abs()).nan_to_num(nan=torch.inf, posinf=torch.inf)
        size = e.abs()
        found.elements += e.numel()
        found.beyond += int((~same & ~(difference <= atol + rtol * size)).sum())
        if e.numel():
            found.absolute = max(found.absolute, float(difference.max()))
            relative = torch.where((size > atol) & ~same, difference / size, 0.0)
            found.relative = max(found.relative, float(relative.nan_to_num(nan=torch.inf, posinf=torch.inf).max()))


def _dtypes(tensors: list[Tensor]) -> str:
    """Each dtype with its tolerances."""
    return ", ".join(
        f"{str(dtype).removeprefix('torch.')} (rtol {rtol:g}, atol {atol:g})"
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors)
        for rtol, atol in (_TOLERANCES.get(dtype, _EXACT),)
    )
