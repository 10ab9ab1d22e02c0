"""Builds and loads `stand_in.cpp`, without which torch's autograd refuses tensors of a GPU that is not there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("stand_in.cpp")
_ANSWERS = {1: "a GPU is in this machine already", 2: "this torch keeps its CUDA hooks elsewhere"}


class StandInFailed(Exception):
    """The GPU cannot be stood in for; the message says why, in one sentence."""


def load() -> None:
    """Build the library once per torch, beside torch's own kernels, and load it. Raises StandInFailed."""
    answer = ctypes.CDLL(str(_built())).fusionscope_stand_in()
    if answer:
        raise StandInFailed(f"the stand-in for the GPU could not be installed: {_ANSWERS[answer]}")


def _built() -> Path:
    import torch
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    version = f"{torch.__version__} {torch.version.git_version} {_SOURCE.read_text()}"
    library = Path(cache_dir()) / "fusionscope" / f"stand_in_{hashlib.sha256(version.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_suffix(f".{os.getpid()}")
        _compile(Path(torch.__file__).parent, unfinished)
        unfinished.replace(library)
    return library


def _compile(torch_folder: Path, library: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++")
    if compiler is None:
        raise StandInFailed("a target needs g++, which is not installed: on Debian, apt-get install g++")
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", f"-I{torch_folder / 'include'}", f"-L{torch_folder / 'lib'}"]
    command = [compiler, *flags, str(_SOURCE), "-o", str(library), "-lc10", "-ltorch_cpu"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise StandInFailed(f"the C++ compiler {compiler} could not be run: {error.strerror}") from error
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise StandInFailed(f"{compiler} could not build the stand-in for the GPU: {reason.strip()}")
