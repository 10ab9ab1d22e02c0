"""Records of what runs on a device: its facts, launch configurations, candidates for a product, and spans of time.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFact:
    """The GPU of a run, present or absent: the maker's rates, and those measured on it where it is present."""

    name: str  # as --target names it; where it names none, the product
    product: str  # as torch.cuda.get_device_name gives it
    backend: str  # cuda, hip
    architecture: str  # sm_90, gfx942
    multiprocessors: int
    warp_size: int
    warps_per_multiprocessor: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_per_block: int
    l2_bytes: int
    memory_bytes: int
    bandwidth_gbps: float | None  # by its maker: of the memory, 10^9 bytes a second
    bf16_tflops: float | None  # by its maker: dense, 10^12 operations a second
    fp32_tflops: float | None
    clock_mhz: int | None  # the highest
    source: str
    copy_gbps: float | None = None  # measured: bytes read and written a second by a large copy, 10^9
    matmul_tflops: float | None = None  # measured: dense bf16, 10^12 operations a second
    method: str | None = None  # how the two were measured


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelConfig:
    """A configuration in which a Triton kernel was compiled, with what the binary takes of a multiprocessor."""

    kernel_id: str
    config: str  # e.g. "XBLOCK=1024 num_warps=4 num_stages=1"; names it within its kernel
    num_warps: int
    num_stages: int
    grid: str | None = None  # blocks along x, y, z, e.g. "4096, 1, 1"; None where sizes are dynamic
    registers: int | None = None  # a thread
    n_spills: int | None = None  # as Triton reports it: local memory of a thread in words of 4 bytes
    spill_bytes: int | None = None  # stores and loads of spilled registers a thread, as ptxas counts them
    shared_bytes: int | None = None  # a block, asked for at launch
    static_shared_bytes: int | None = None  # a block, besides, fixed in the binary
    occupancy: float | None = None  # theoretical: warps that fit, of those that a multiprocessor holds
    occupancy_limit: str | None = None  # what binds: registers, shared memory, warps, blocks
    chosen: bool | None = None  # None: undecided, only timing on the GPU can tell
    time_us: float | None = None  # benchmarked by the autotuner
    origin: str  # heuristics; register_pressure: added since the registers of another one limit its occupancy;
    # autotune_cache: the winner of an earlier contest; coordinate_descent, combo_autotune: tried on the way
    static_launcher: bool | None = None  # Inductor launches the binary by itself, without Triton's Python


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """What a Triton kernel became on its way to the binary, in one configuration."""

    kernel_id: str
    config: str
    kind: str  # ttir, ptx, amdgcn, sass
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmChoice:
    """A candidate that Inductor weighed for an operation that a library or a template can compute."""

    graph_id: str
    op: str  # as Inductor names it: mm, addmm, convolution, …
    node: str | None = None  # FX node being lowered
    shapes: str | None = None  # of its inputs, e.g. "64x512, 512x512"
    choice: str  # name of the candidate
    kind: str  # library, triton, cpp, subgraph, other
    config: str | None = None  # of a template: e.g. "BLOCK_M=64 BLOCK_N=64 num_warps=4"
    time_us: float | None = None  # benchmarked by the autotuner; None: not benchmarked, or it failed
    chosen: bool | None = None  # None: undecided without the hardware
    error: str | None = None  # why it could not run, in one line


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSpan:
    """A span of a profiled call of the model: what the host issued, or what the device ran."""

    variant: str  # eager, compiled, …
    lane: str  # host, device
    name: str
    start_us: float  # since the call began
    end_us: float
    kernel_id: str | None = None
    op: str | None = None  # operator that launched it
