"""What recording for a GPU that is not here costs per kernel, with cold and with warm caches, beside the compile."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fusionscope.storage.library import Library
from fusionscope.storage.queries import overview
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.records import Kernel, KernelConfig

PROGRAMS = str(Path(__file__).with_name("target_programs.py"))


@dataclass(frozen=True)
class Cost:
    """Seconds of one recorded target run, and how many kernels it compiled in how many configurations."""

    wall_s: float  # of the command, start of the process included; cold: with the stand-in for the GPU built by g++
    compile_s: float
    recording_s: float  # inside hooks and writing: resources, PTX and SASS of each configuration among it
    kernels: int
    configs: int

    def __str__(self) -> str:
        per_kernel = (
            f"{self.wall_s / self.kernels:.2f} s a kernel, of which recording {self.recording_s / self.kernels:.3f} s"
        )
        share = f"{self.recording_s / self.compile_s:.1%} of the {self.compile_s:.1f} s of compiling"
        return (
            f"{self.wall_s:5.1f} s for {self.kernels} kernels in {self.configs} configurations: {per_kernel} ({share})"
        )


def costs(model: str, gpu: str) -> Iterator[tuple[str, Cost]]:
    """Record a model for a GPU twice, with caches that nobody used before and then with those of the first time."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
        for caches in ("cold", "cached"):
            yield caches, _cost(model, gpu, Path(folder) / caches, env)


def _cost(model: str, gpu: str, store: Path, env: dict[str, str]) -> Cost:
    command = [
        sys.executable,
        "-m",
        "fusionscope.collector.cli",
        "record",
        model,
        "--target",
        gpu,
        "--store",
        str(store),
    ]
    start = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall_s, library = time.perf_counter() - start, Library(store)
    (run,) = library.ask(library_runs)
    kernels = library.ask(records_of, Kernel, run.run_id)
    return Cost(
        wall_s,
        library.ask(overview.compile_seconds, run.run_id) or 0.0,
        library.ask(overview.run, run.run_id).recorder_overhead_s or 0.0,
        sum(kernel.backend == "triton" for kernel in kernels),
        len(library.ask(records_of, KernelConfig, run.run_id)),
    )
