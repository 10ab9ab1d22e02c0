"""Occupancy agrees with NVIDIA's own calculator, and names what limits it."""

from __future__ import annotations

import pytest

from fusionscope.collector.targets.devices import DEVICES, capability
from fusionscope.collector.targets.occupancy import LIMITS, occupancy

# What cudaOccMaxActiveBlocksPerMultiprocessor of cuda_occupancy.h (CUDA 13.0) answers for registers, shared bytes and
# warps: blocks on sm_80, on sm_90 and on sm_100, and the limiting factors on sm_90.
CALCULATOR = [
    (32, 0, 4, 16, 16, 16, "warps, registers"),
    (18, 0, 8, 8, 8, 8, "warps"),
    (64, 0, 1, 32, 32, 32, "registers, blocks"),
    (72, 0, 1, 28, 28, 28, "registers"),
    (71, 8192, 8, 3, 3, 3, "registers"),
    (54, 4096, 8, 4, 4, 4, "registers"),
    (104, 8192, 8, 2, 2, 2, "registers"),
    (40, 24608, 8, 6, 6, 6, "registers"),
    (80, 20552, 4, 6, 6, 6, "registers"),
    (255, 0, 4, 2, 2, 2, "registers"),
    (255, 0, 9, 0, 0, 0, "registers"),
    (168, 98304, 4, 1, 2, 2, "shared memory"),
    (128, 231424, 8, 0, 1, 1, "shared memory"),
    (33, 0, 32, 1, 1, 1, "registers"),
    (65, 0, 32, 0, 0, 0, "registers"),
    (16, 0, 1, 32, 32, 32, "blocks"),
    (24, 16384, 2, 9, 13, 13, "shared memory"),
    (96, 0, 12, 1, 1, 1, "registers"),
]


@pytest.mark.parametrize(("registers", "shared", "warps", "sm_80", "sm_90", "sm_100", "limit"), CALCULATOR)
def test_occupancy_is_that_of_the_cuda_occupancy_calculator(
    registers: int, shared: int, warps: int, sm_80: int, sm_90: int, sm_100: int, limit: str
) -> None:
    found = {name: occupancy(name, registers, shared, warps) for name in ("sm_80", "sm_90", "sm_100")}
    assert {name: fits.blocks for name, fits in found.items() if fits} == {
        "sm_80": sm_80,
        "sm_90": sm_90,
        "sm_100": sm_100,
    }
    assert found["sm_90"] is not None
    assert found["sm_90"].limit == limit
    assert found["sm_90"].fraction == sm_90 * warps / 64


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "blocks", "limit"),
    [
        (64, 0, 4, 8, "warps, registers"),  # 512 // 64 = 8 waves a SIMD
        (65, 0, 4, 7, "registers"),  # 512 // 72
        (256, 0, 4, 2, "registers"),
        (32, 32768, 4, 2, "shared memory"),
        (16, 0, 2, 16, "warps, blocks"),  # 16 barriers
        (16, 0, 1, 32, "warps, blocks"),
    ],
)
def test_occupancy_of_the_mi300x_counts_waves_registers_and_lds(
    registers: int, shared: int, warps: int, blocks: int, limit: str
) -> None:
    found = occupancy("gfx942", registers, shared, warps)
    assert found is not None
    assert (found.blocks, found.limit, found.fraction) == (blocks, limit, blocks * warps / 32)


def test_an_architecture_without_known_limits_has_no_occupancy() -> None:
    assert occupancy("sm_75", 32, 0, 4) is None


def test_every_target_has_limits_a_capability_and_a_source() -> None:
    assert {name: capability(device) for name, device in DEVICES.items()} == {
        "A100": (8, 0),
        "H100": (9, 0),
        "H200": (9, 0),
        "B200": (10, 0),
        "MI300X": (9, 4),
    }
    assert all(device.architecture in LIMITS and device.source for device in DEVICES.values())
