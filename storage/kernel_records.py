"""Records of kernels: what they are, their calls in the emitted wrapper, and how long they took.

Part of the contract in `records.py`, which offers them with all others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A generated kernel, or a library kernel that the wrapper calls."""

    kernel_id: str
    graph_id: str
    name: str
    backend: str  # triton, cpp, extern, template, user
    source: str | None = None
    bytes_read: int | None = None  # whole size of each buffer that its first call reads
    bytes_written: int | None = None  # whole size of each buffer that its first call writes
    flops: int | None = None  # summed over the scheduler nodes of its first call


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """A call in the emitted wrapper, in order. A C++ kernel may hold several fusion groups.

    `moved` is the least that the call has to read and write: each buffer once, and of a buffer that is indexed, sliced
    or gathered from no more than what a scheduler node of the call accesses (a row gathered twice counts twice).
    """

    graph_id: str
    position: int
    kernel_id: str
    group_ids: tuple[str, ...] = ()
    step: int | None = None  # wrapper step, the x axis of the plan
    line: int | None = None  # line of graphs.output_code, from 1
    grid: str | None = None
    bytes_read: int | None = None  # whole size of each buffer that it reads
    bytes_written: int | None = None  # whole size of each buffer that it writes
    moved: int | None = None  # bytes
    flops: int | None = None  # summed over its scheduler nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTiming:
    """The measured time of one kernel (or one library operator) in one variant."""

    name: str
    kernel_id: str | None = None
    variant: str  # eager, compiled; another of `--variants` by its name
    calls: int  # per call of the model
    median_us: float  # one call of the kernel
    total_us: float  # per call of the model
    method: str
    op: str | None = None  # operator that launched it; None for a generated kernel
