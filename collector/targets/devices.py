"""GPUs that a run can be recorded for without having one.

Sources, dense rates without sparsity:
A100: NVIDIA A100 Tensor Core GPU Architecture whitepaper (2020), table 4, and the A100 80GB SXM data sheet.
H100: NVIDIA H100 Tensor Core GPU Architecture whitepaper (2022), tables 1 and 2, SXM5, and its data sheet.
H200: NVIDIA H200 Tensor Core GPU data sheet (2023), SXM; multiprocessors and L2 as the CUDA driver reports them.
B200: NVIDIA Blackwell data sheet (2024), HGX B200, one GPU; multiprocessors and L2 as the CUDA driver reports them.
MI300X: AMD Instinct MI300X data sheet (2023) and AMD CDNA 3 whitepaper; L2 is that of one of the eight dies.
Limits of a multiprocessor come from `occupancy.LIMITS`; what a block may share is the opt-in maximum of
cudaDeviceProp.sharedMemPerBlockOptin (CUDA C++ Programming Guide, technical specifications).
"""

from __future__ import annotations

from fusionscope.collector.targets.occupancy import LIMITS
from fusionscope.storage.records import DeviceFact

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _device(architecture: str, source: str, **facts: object) -> DeviceFact:
    limits = LIMITS[architecture]
    return DeviceFact(
        architecture=architecture,
        warp_size=limits.warp_size,
        warps_per_multiprocessor=limits.warps,
        shared_bytes_per_multiprocessor=limits.shared_bytes,
        source=source,
        **facts,  # type: ignore[arg-type]
    )


_DEVICES = (
    _device(
        "sm_80",
        "NVIDIA A100 whitepaper and data sheet, SXM, 80 GB",
        name="A100",
        product="NVIDIA A100-SXM4-80GB",
        backend="cuda",
        multiprocessors=108,
        shared_bytes_per_block=163 * _KIB,
        l2_bytes=40 * _MIB,
        memory_bytes=80 * _GIB,
        bandwidth_gbps=2039,
        bf16_tflops=312,
        fp32_tflops=19.5,
        clock_mhz=1410,
    ),
    _device(
        "sm_90",
        "NVIDIA H100 whitepaper and data sheet, SXM5",
        name="H100",
        product="NVIDIA H100 80GB HBM3",
        backend="cuda",
        multiprocessors=132,
        shared_bytes_per_block=227 * _KIB,
        l2_bytes=50 * _MIB,
        memory_bytes=80 * _GIB,
        bandwidth_gbps=3350,
        bf16_tflops=989,
        fp32_tflops=67,
        clock_mhz=1980,
    ),
    _device(
        "sm_90",
        "NVIDIA H200 data sheet, SXM; multiprocessors and L2 as the driver reports them",
        name="H200",
        product="NVIDIA H200",
        backend="cuda",
        multiprocessors=132,
        shared_bytes_per_block=227 * _KIB,
        l2_bytes=60 * _MIB,
        memory_bytes=141 * _GIB,
        bandwidth_gbps=4800,
        bf16_tflops=989,
        fp32_tflops=67,
        clock_mhz=1980,
    ),
    _device(
        "sm_100",
        "NVIDIA Blackwell data sheet, HGX B200; multiprocessors and L2 as the driver reports them",
        name="B200",
        product="NVIDIA B200",
        backend="cuda",
        multiprocessors=148,
        shared_bytes_per_block=227 * _KIB,
        l2_bytes=126 * _MIB,
        memory_bytes=180 * _GIB,
        bandwidth_gbps=8000,
        bf16_tflops=2250,
        fp32_tflops=75,
        clock_mhz=1965,
    ),
    _device(
        "gfx942",
        "AMD Instinct MI300X data sheet, CDNA 3 whitepaper",
        name="MI300X",
        product="AMD Instinct MI300X",
        backend="hip",
        multiprocessors=304,
        shared_bytes_per_block=64 * _KIB,
        l2_bytes=4 * _MIB,
        memory_bytes=192 * _GIB,
        bandwidth_gbps=5300,
        bf16_tflops=1307,
        fp32_tflops=163,
        clock_mhz=2100,
    ),
)
DEVICES: dict[str, DeviceFact] = {device.name: device for device in _DEVICES}


def capability(device: DeviceFact) -> tuple[int, int]:
    """Compute capability, as torch.cuda.get_device_capability gives it: of gfx942 it is 9.4."""
    digits = device.architecture.removeprefix("sm_").removeprefix("gfx")
    return (int(digits[0]), int(digits[1])) if device.backend == "hip" else (int(digits[:-1]), int(digits[-1]))
