"""Kernels against the rates of their GPU: the least time of each, and what it achieved."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage import roofline
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.kernels import KernelRow, kernels
from fusionscope.storage.records import DeviceFact, Run
from fusionscope.storage.roofline import Bound, Yardstick


@dataclass(frozen=True, slots=True)
class Judged:
    """A kernel with what one call of it needs at least, and what it achieved where it was timed."""

    row: KernelRow
    bound: Bound | None  # None where the rates of the device are not recorded, or nothing is known of the kernel
    gbps: float | None  # achieved, 10^9 bytes a second
    of_bandwidth: float | None  # that over `roofline.bandwidth_yardstick`; above 1 the L2 cache helped
    tflops: float | None  # achieved, 10^12 operations a second
    of_rate: float | None  # that over the rate of its dtypes; of half precision `roofline.matmul_yardstick`

    @property
    def least_us(self) -> float | None:
        """The lower bound of all its calls in one call of the model."""
        return None if self.bound is None else self.bound.us * self.row.calls

    @property
    def weight_us(self) -> float | None:
        """What it is ranked by: its measured total, else its lower bound."""
        return self.least_us if self.row.total_us is None else self.row.total_us


def device(con: DuckDBPyConnection, run_id: str) -> DeviceFact | None:
    """The GPU of a run with its rates; None for a run on a CPU, or one from before they were recorded."""
    return next(iter(records_of(con, DeviceFact, run_id)), None)


def judged(con: DuckDBPyConnection, run_id: str) -> list[Judged]:
    """The rows of `kernels`, slowest first; those without a time by their lower bound, then as `kernels` has them."""
    gpu, fp32_matmul = device(con, run_id), records_of(con, Run, run_id)[0].fp32_matmul
    rows = [_judge(row, gpu, fp32_matmul) for row in kernels(con, run_id)]
    return sorted(rows, key=lambda j: (j.row.total_us is None, -(j.weight_us or 0.0)))


def _judge(row: KernelRow, gpu: DeviceFact | None, fp32_matmul: str | None) -> Judged:
    gbps = roofline.achieved_gbps(row.moved, row.call_us)
    tflops = roofline.achieved_tflops(row.flops, row.call_us)
    if gpu is None:
        return Judged(row, None, gbps, None, tflops, None)
    rate = roofline.operation_rate(gpu, row.flop_dtypes or (), fp32_matmul)
    half = rate is not None and rate == gpu.bf16_tflops
    yardstick = roofline.matmul_yardstick(gpu) if half else rate and Yardstick(rate, "the maker's number", False)
    return Judged(
        row,
        roofline.at_least(row.moved, row.flops, rate, gpu),
        gbps,
        roofline.share(gbps, roofline.bandwidth_yardstick(gpu)),
        tflops,
        roofline.share(tflops, yardstick or None),
    )
