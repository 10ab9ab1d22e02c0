"""Samples of a quantity summed up as a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from fusionscope.storage.records import Measurement


def summed_up(
    variant: str,
    metric: str,
    values: Sequence[float],
    *,
    unit: str,
    method: str,
    discarded: int = 0,
    reason: str | None = None,
) -> Measurement:
    """The median of at least one sample, with its tenth and ninetieth percentile."""
    tenths = quantiles(values, n=10, method="inclusive") if len(values) > 1 else [values[0]] * 9
    return Measurement(
        variant=variant,
        metric=metric,
        median=median(values),
        p10=tenths[0],
        p90=tenths[8],
        samples=len(values),
        unit=unit,
        discarded=discarded,
        reason=reason,
        method=method,
    )
