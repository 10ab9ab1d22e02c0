"""The facts of a run that are known when it begins: versions, machine, caches, commit."""

from __future__ import annotations

import json
import os
import platform
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from fusionscope.collector.targets.presence import present
from fusionscope.collector.torch_facts import installed
from fusionscope.storage.notes import default_author
from fusionscope.storage.records import Run

RANK, RANKS, GROUP = "CASE_RANK", "FUSIONSCOPE_RANKS", "FUSIONSCOPE_GROUP"  # what the ranks of a model file are told


def begin_run(
    name: str | None,
    *,
    project: str | None,
    group: str | None,
    tags: Sequence[str],
    mode: str | None,
    dynamic: bool | None,
    source_path: str | Path | None,
    command: str | None,
    options: str | None,
    fx_cache: str,
) -> Run:
    """The run's row as it stands before anything is recorded."""
    import torch

    now = datetime.now(UTC).replace(tzinfo=None)
    commit, branch, dirty = _git()
    return Run(
        run_id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}",
        name=name or Path(sys.argv[0]).stem or "session",
        project=project,
        tags=tuple(tags),
        created_at=now,
        author=default_author(),
        status="complete",
        torch_version=str(torch.__version__),
        triton_version=installed("triton"),
        python_version=platform.python_version(),
        cuda_version=None if present() else torch.version.cuda,
        host=socket.gethostname(),
        threads=torch.get_num_threads(),
        mode=mode,
        dynamic=dynamic,
        rank=_integer(RANK) if RANK in os.environ else _integer("RANK"),
        world_size=_integer(RANKS) or _integer("WORLD_SIZE"),
        group_id=group or os.environ.get(GROUP) or _job(),
        git_commit=commit,
        git_branch=branch,
        git_dirty=dirty,
        command=command or shlex.join(sys.argv),
        cwd=str(Path.cwd()),
        source_path=str(source_path) if source_path else None,
        options=options or json.dumps({}),
        fx_cache=fx_cache,
        kernel_cache=_kernel_cache(),
    )


def device() -> tuple[str, str | None]:
    """The kind and name of the device that was used: CUDA once it was touched, else the CPU; or the target."""
    import torch

    if (target := present()) is not None:
        return "target", target.name
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cuda", torch.cuda.get_device_name()
    return "cpu", _cpu_name()


def fp32_matmul() -> str:
    """How a GPU multiplies float32 by the present settings: tf32 in tensor cores, or ieee."""
    import torch

    # Both interfaces set it; torch.get_float32_matmul_precision raises once the newer one was used.
    chosen: str = torch.backends.cuda.matmul.fp32_precision
    return "tf32" if chosen == "tf32" else "ieee"


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _kernel_cache() -> str:
    """warm when Inductor's cache folder already holds compiled kernels."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return "warm" if any(Path(cache_dir()).iterdir()) else "cold"


def _job() -> str | None:
    """What the ranks that torchrun started share: the id of their job."""
    job = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if job == "none" else job  # so torch/distributed/run.py calls every job of a static rendezvous


def _integer(variable: str) -> int | None:
    value = os.environ.get(variable, "")
    return int(value) if value.isdecimal() else None


def _git() -> tuple[str | None, str | None, bool | None]:
    commit = _git_says("rev-parse", "HEAD")
    if commit is None:
        return None, None, None
    branch = _git_says("rev-parse", "--abbrev-ref", "HEAD")
    return commit, branch, bool(_git_says("status", "--porcelain", "--untracked-files=no"))


def _git_says(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
