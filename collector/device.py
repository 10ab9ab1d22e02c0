"""The GPU of a run, present or stood in for: what the driver and the maker say of it, and what was measured on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fusionscope.collector.targets.devices import DEVICES
from fusionscope.collector.targets.presence import present
from fusionscope.storage.records import DeviceFact


@dataclass(frozen=True, slots=True)
class MeasuredRates:
    """What was measured on the device itself, and how."""

    copy_gbps: float | None  # bytes read and written a second by a large copy, 10^9
    matmul_tflops: float | None  # dense bf16, 10^12 operations a second
    method: str


def device_fact(rates: MeasuredRates | None) -> DeviceFact | None:
    """The row of device_facts: of the target, else of the GPU that this process used; None where it used none."""
    import torch

    fact = present()
    if fact is None and torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        fact = of_properties(torch.cuda.get_device_properties(torch.cuda.current_device()))
    if fact is None or rates is None:
        return fact
    return replace(fact, copy_gbps=rates.copy_gbps, matmul_tflops=rates.matmul_tflops, method=rates.method)


def of_properties(properties: Any) -> DeviceFact:
    """What the driver tells (torch.cuda.get_device_properties), with the maker's rates where the product is known."""
    known = next((device for device in DEVICES.values() if device.product == properties.name), None)
    hip = getattr(properties, "gcnArchName", "").partition(":")[0] if _on_hip() else ""
    clock = getattr(properties, "clock_rate", None)  # kHz; not bound by every torch
    return DeviceFact(
        name=known.name if known else properties.name,
        product=properties.name,
        backend="hip" if hip else "cuda",
        architecture=hip or f"sm_{properties.major}{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        warp_size=properties.warp_size,
        warps_per_multiprocessor=properties.max_threads_per_multi_processor // properties.warp_size,
        shared_bytes_per_multiprocessor=properties.shared_memory_per_multiprocessor,
        shared_bytes_per_block=properties.shared_memory_per_block_optin,
        l2_bytes=properties.L2_cache_size,
        memory_bytes=properties.total_memory,
        bandwidth_gbps=known.bandwidth_gbps if known else None,
        bf16_tflops=known.bf16_tflops if known else None,
        fp32_tflops=known.fp32_tflops if known else None,
        clock_mhz=clock // 1000 if clock else known.clock_mhz if known else None,
        source=f"the driver; rates: {known.source}" if known else "the driver; its maker's rates are not in our table",
    )


def _on_hip() -> bool:
    import torch

    return torch.version.hip is not None
