"""What a kernel needs at least on its GPU, and what it achieved: bytes and operations against the device's rates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fusionscope.storage.records import DeviceFact

_HALF, _SINGLE = {"float16", "bfloat16"}, {"float32"}
_NO_FACTORS = {"bool", "int32", "int64", "uint32", "uint64"}  # masks, offsets and seeds: nothing multiplies them
_BYTES_PER_US = 1e3  # of one GB/s
_OPERATIONS_PER_US = 1e6  # of one TFLOP/s


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time that a call can take. Never a prediction: a real kernel takes longer, often by a factor."""

    us: float
    by: str  # memory, operations: what takes that long


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A rate to hold what was achieved against, with its name."""

    rate: float  # 10^9 bytes a second, or 10^12 operations a second
    name: str
    measured: bool


def at_least(moved: int | None, flops: int | None, tflops: float | None, device: DeviceFact) -> Bound | None:
    """Roofline lower bound in µs: max(bytes / bandwidth, operations / rate); None where neither quotient is known.

    Williams, Waterman, Patterson, "Roofline" (CACM 2009), solved for time. `moved` is bytes, `flops` operations of one
    call, `tflops` their `operation_rate`. Both rates are the maker's, which no kernel exceeds, with one exception: what
    an earlier kernel left in the L2 cache is read faster than from memory.
    """
    bounds = []
    if moved is not None and device.bandwidth_gbps is not None:
        bounds.append(Bound(moved / (device.bandwidth_gbps * _BYTES_PER_US), "memory"))
    if flops is not None and tflops is not None:
        bounds.append(Bound(flops / (tflops * _OPERATIONS_PER_US), "operations"))
    return max(bounds, key=lambda bound: bound.us, default=None)


def operation_rate(device: DeviceFact, dtypes: Iterable[str], fp32_matmul: str | None) -> float | None:
    """The maker's dense rate, 10^12 operations a second, for products of these dtypes; None where it is not known.

    Of several dtypes the fastest counts, so that the bound holds. float32 is multiplied in tensor cores (`fp32_matmul`
    is tf32) at half the rate of bfloat16 (data sheets of A100, H100, H200, B200 and MI300X); not recorded counts as so.
    """
    factors = set(dtypes) - _NO_FACTORS
    if not factors or factors - _HALF - _SINGLE:
        return None
    if factors & _HALF:
        return device.bf16_tflops
    if fp32_matmul == "ieee":
        return device.fp32_tflops
    return None if device.bf16_tflops is None else device.bf16_tflops / 2


def achieved_gbps(moved: int | None, us: float | None) -> float | None:
    """Achieved bandwidth, 10^9 bytes a second: the bytes of a call over its measured time in µs."""
    return moved / (us * _BYTES_PER_US) if moved is not None and us else None


def achieved_tflops(flops: int | None, us: float | None) -> float | None:
    """Achieved rate, 10^12 operations a second: the operations of a call over its measured time in µs."""
    return flops / (us * _OPERATIONS_PER_US) if flops is not None and us else None


def bandwidth_yardstick(device: DeviceFact) -> Yardstick | None:
    """The bandwidth of a large copy where it was measured on the device itself, else the maker's number."""
    return _yardstick(device.copy_gbps, "a large copy", device.bandwidth_gbps, device.source)


def matmul_yardstick(device: DeviceFact) -> Yardstick | None:
    """The rate of a large product in bfloat16 where it was measured, else the maker's number."""
    return _yardstick(device.matmul_tflops, "a large bfloat16 product", device.bf16_tflops, device.source)


def _yardstick(measured: float | None, of: str, made_for: float | None, source: str) -> Yardstick | None:
    if measured is not None:
        return Yardstick(measured, f"{of}, measured on this GPU", True)
    return None if made_for is None else Yardstick(made_for, f"the maker's number ({source})", False)


def share(achieved: float | None, yardstick: Yardstick | None) -> float | None:
    """What was achieved as a fraction of the yardstick's rate; None where one of both is not known."""
    return None if achieved is None or yardstick is None else achieved / yardstick.rate
