"""What a kernel needs at least and what it achieved, worked out by hand for an H200."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from example_gpu import ADDMM, GPU_ID, RELU, SOFTMAX, publish_gpu

from fusionscope.collector.targets.devices import DEVICES
from fusionscope.storage import roofline
from fusionscope.storage.library import Library
from fusionscope.storage.queries import rooflines

H200 = DEVICES["H200"]  # 4800 GB/s, 989 bf16 TFLOP/s, 67 in fp32


@pytest.mark.parametrize(
    ("moved", "flops", "us", "by"),
    [
        (48_000_000, None, 10.0, "memory"),
        (48_000_000, 98_900_000_000, 100.0, "operations"),
        (None, 9_890_000_000, 10.0, "operations"),
        (0, None, 0.0, "memory"),
    ],
)
def test_the_longer_of_bytes_and_operations_is_the_least_time(
    moved: int | None, flops: int | None, us: float, by: str
) -> None:
    bound = roofline.at_least(moved, flops, H200.bf16_tflops, H200)
    assert bound is not None
    assert (pytest.approx(us), by) == (bound.us, bound.by)


def test_nothing_known_is_no_bound() -> None:
    assert roofline.at_least(None, None, 989.0, H200) is None
    assert roofline.at_least(None, 10, None, H200) is None
    assert roofline.at_least(10, None, None, replace(H200, bandwidth_gbps=None)) is None


@pytest.mark.parametrize(
    ("dtypes", "fp32_matmul", "tflops"),
    [
        ({"bfloat16"}, "ieee", 989),
        ({"bfloat16", "float32", "int64"}, "ieee", 989),  # the fastest of both: a bound must hold
        ({"float32", "bool"}, "ieee", 67),
        ({"float32"}, "tf32", 494.5),
        ({"float32"}, None, 494.5),  # not recorded
        ({"float8_e4m3fn", "bfloat16"}, "ieee", None),
        ({"float64"}, "ieee", None),
        (set(), "ieee", None),
    ],
)
def test_a_rate_is_that_of_the_fastest_factor(dtypes: set[str], fp32_matmul: str | None, tflops: float | None) -> None:
    assert roofline.operation_rate(H200, dtypes, fp32_matmul) == tflops


def test_what_was_measured_on_the_gpu_is_preferred_to_the_makers_number() -> None:
    by_the_maker = roofline.bandwidth_yardstick(H200)
    assert by_the_maker is not None
    assert (by_the_maker.rate, by_the_maker.measured) == (4800, False)
    assert "data sheet" in by_the_maker.name
    measured = roofline.bandwidth_yardstick(replace(H200, copy_gbps=4100.0))
    assert measured is not None
    assert (measured.rate, measured.measured) == (4100, True)


def test_the_kernels_of_a_run_are_judged_by_bytes_operations_and_times(tmp_path: Path) -> None:
    publish_gpu(tmp_path / "store")
    judged = {k.row.kernel_id: k for k in Library(tmp_path / "store").ask(rooflines.judged, GPU_ID)}
    addmm, relu, softmax = judged[ADDMM], judged[RELU], judged[SOFTMAX]
    activation = 64 * 512 * 4
    assert relu.row.moved == 2 * activation
    assert relu.gbps == pytest.approx(2 * activation / 1.55e3)
    assert relu.of_bandwidth == pytest.approx(2 * activation / 1.55e3 / 4100)
    assert addmm.row.flop_dtypes == ("float32",)
    assert addmm.bound is not None
    assert (addmm.bound.by, addmm.bound.us) == ("operations", pytest.approx(2 * 64 * 512 * 512 / 67e6))
    assert addmm.of_rate == pytest.approx(2 * 64 * 512 * 512 / 20.3e6 / 67)
    assert addmm.least_us == pytest.approx(4 * addmm.bound.us)
    assert softmax.weight_us == 4.8
    assert [k.row.kernel_id for k in judged.values()] == [ADDMM, SOFTMAX, RELU]
