"""The GPU you do not have: record a model for it in a process of its own, by the code that would run on it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from fusionscope.collector.targets.devices import DEVICES


def obstacle(name: str) -> str | None:
    """Say in one sentence what keeps a run from being recorded for the GPU `name`, or None."""
    if name not in DEVICES:
        return f"there is no target {name!r}: give one of {', '.join(DEVICES)}"
    if sys.platform != "linux":
        return "a target needs Linux, where Triton has its compilers: use a container"
    if find_spec("triton") is None:
        return "a target needs Triton, which is not installed: pip install triton"
    if not os.environ.get("CXX") and shutil.which("g++") is None:
        return "a target needs g++, which is not installed: on Debian, apt-get install g++"
    return None


def record_in_child(name: str, command_line: Sequence[str]) -> int:
    """Run the command in a process that takes the GPU `name` for present; returns its exit code.

    A GPU that is in this machine is hidden from it. Ctrl-C reaches it by itself: it publishes what it has.
    """
    command = [sys.executable, "-m", "fusionscope.collector.targets.child", name, *command_line]
    with subprocess.Popen(command, env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}) as child:
        while True:
            try:
                code = child.wait()
            except KeyboardInterrupt:
                continue
            return code if code >= 0 else 128 - code  # as a shell tells of a signal
