"""Theoretical occupancy: how many warps of a kernel fit on a multiprocessor, and what keeps more from fitting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_PARTITIONS = 4  # of a multiprocessor: each has its own registers, and runs a quarter of the warps


@dataclass(frozen=True, slots=True)
class Limits:
    """What one multiprocessor of an architecture holds, and in which portions it is given out."""

    warp_size: int
    warps: int
    blocks: int
    blocks_of_several_warps: int  # AMD: fewer, since such a block takes one of the barriers
    registers: int  # 32-bit, of all lanes
    registers_per_block: int  # the most that one block may take
    registers_per_thread: int
    register_unit: int  # registers of a warp come in multiples of this
    shared_bytes: int
    shared_unit: int
    shared_reserved: int  # taken by the driver for each block


def _nvidia(shared_bytes: int) -> Limits:
    return Limits(
        warp_size=32,
        warps=64,
        blocks=32,
        blocks_of_several_warps=32,
        registers=65536,
        registers_per_block=65536,
        registers_per_thread=255,
        register_unit=256,
        shared_bytes=shared_bytes,
        shared_unit=128,
        shared_reserved=1024,
    )


# NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; allocation units and the
# reserved kilobyte from cuda_occupancy.h of the CUDA toolkit 13.0.
# gfx942: AMD CDNA 3 ISA guide, 3.6 and 11.1 (512 vector registers a lane and SIMD, in eights; 64 KiB of LDS in
# portions of 512 bytes); 8 waves a SIMD and 16 barriers from LLVM, AMDGPUBaseInfo.cpp, getMaxWorkGroupsPerCU.
LIMITS: dict[str, Limits] = {
    "sm_80": _nvidia(164 * 1024),
    "sm_90": _nvidia(228 * 1024),
    "sm_100": _nvidia(228 * 1024),
    "gfx942": Limits(
        warp_size=64,
        warps=32,
        blocks=32,
        blocks_of_several_warps=16,
        registers=4 * 512 * 64,
        registers_per_block=4 * 512 * 64,
        registers_per_thread=512,
        register_unit=8 * 64,
        shared_bytes=64 * 1024,
        shared_unit=512,
        shared_reserved=0,
    ),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks that a multiprocessor holds at a time, its warps in use as a fraction, and what limits them."""

    blocks: int
    fraction: float
    limit: str  # of warps, registers, shared memory, blocks; several where they bind alike


def occupancy(architecture: str, registers: int, shared_bytes: int, warps: int) -> Occupancy | None:
    """Occupancy of a kernel with `registers` a thread, `shared_bytes` and `warps` a block; None: unknown architecture.

    blocks = min(64 // warps, 32, 4 * (16384 // up(32 * registers, 256)) // warps, shared // up(bytes + 1024, 128)) on
    NVIDIA, where up(n, unit) rounds up to portions: cudaOccMaxActiveBlocksPerMultiprocessor in cuda_occupancy.h. On
    AMD the same with that architecture's `LIMITS` and without the reserved kilobyte. A kernel that does not fit at all
    has 0 blocks.
    """
    limits = LIMITS.get(architecture)
    if limits is None:
        return None
    fits = _blocks_by_resource(limits, registers, shared_bytes, warps)
    blocks = min(fits.values())
    binding = ", ".join(resource for resource, count in fits.items() if count == blocks)
    return Occupancy(blocks, blocks * warps / limits.warps, binding)


def _blocks_by_resource(limits: Limits, registers: int, shared_bytes: int, warps: int) -> Mapping[str, int]:
    fits = {
        "warps": limits.warps // warps,
        "registers": _blocks_by_registers(limits, registers, warps),
        "blocks": limits.blocks if warps == 1 else limits.blocks_of_several_warps,
    }
    if shared := _up(shared_bytes + limits.shared_reserved, limits.shared_unit):
        fits["shared memory"] = limits.shared_bytes // shared
    return fits


def _blocks_by_registers(limits: Limits, registers: int, warps: int) -> int:
    per_warp = _up(max(registers, 1) * limits.warp_size, limits.register_unit)
    if registers > limits.registers_per_thread or per_warp * _up(warps, _PARTITIONS) > limits.registers_per_block:
        return 0
    return limits.registers // _PARTITIONS // per_warp * _PARTITIONS // warps


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit
