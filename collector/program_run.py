"""A program run with the clock on: as it is, and a second time with everything compiled run eagerly."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fusionscope.collector.hook import Emit
from fusionscope.collector.hooks.compiled_calls import CompiledCalls, frames_compiled
from fusionscope.collector.on_import import after_import
from fusionscope.collector.script import Outcome, Program, execute
from fusionscope.storage.records import Measurement

WALL = "one run of the whole program, imports and compilation included"
RSS = "peak resident memory of the program's process over one run, compilation included, child processes not"
RECORDED = " (recorder on, torch's graph caches off)"


class NotCompared(Exception):
    """The second run says nothing about the first; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Start:
    """A program and where it starts from, kept so that a second run starts from the same."""

    program: Program
    folder: Path = field(default_factory=Path.cwd)
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))


def timed(program: Program, begin: Callable[[], None]) -> tuple[Outcome, float]:
    """Execute the program; return how it ended and the seconds that it took.

    `begin()` is called once the program has imported torch, so that torch finds the environment that the program
    prepared for it.
    """
    with after_import("torch", begin):
        started = time.perf_counter()
        outcome = execute(program)
        return outcome, time.perf_counter() - started


def whole_program(variant: str, wall_s: float, remark: str = "") -> list[Measurement]:
    """What is measured of this process, which has run a program; `remark` is added to the methods."""
    peak = peak_rss_bytes()
    return [
        Measurement(variant=variant, metric="wall_s", median=wall_s, unit="s", method=WALL + remark),
        Measurement(variant=variant, metric="peak_rss_bytes", median=peak, unit="bytes", method=RSS + remark),
    ]


def peak_rss_bytes() -> int:
    """The most memory that this process has had resident.

    Linux counts VmHWM from the process's own start; ru_maxrss begins with the peak of the process that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def eager_counterparts(start: Start, code: int, compiled: CompiledCalls) -> list[Measurement]:
    """Run the program again with everything compiled run eagerly; return what was measured of it.

    Its standard output goes to standard error. `code` is how the first run ended, `compiled` its calls. Raises
    NotCompared where the second run ends otherwise, or compiles something.
    """
    eager = _second_run(start)
    if eager["code"] != code:
        raise NotCompared(f"the second run ended with exit code {eager['code']}, not {code}")
    if eager["frames"]:
        raise NotCompared(f"the second run compiled {eager['frames']} frames all the same: the program sets the stance")
    return [Measurement(**row) for row in eager["measured"] + _same_call(eager["calls"], compiled)]


def _second_run(start: Start) -> dict[str, Any]:
    """What a child process writes that runs the program under the stance force_eager."""
    with tempfile.TemporaryDirectory(prefix="fusionscope-") as folder:
        result = Path(folder) / "eager.json"
        command = [sys.executable, "-m", __name__, str(result), *start.program.words]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr}
        subprocess.run(command, cwd=start.folder, env=start.environment, check=False, **streams)
        if not result.exists():
            raise NotCompared("the second run did not come to its end")
        return dict(json.loads(result.read_text()))


def _same_call(eager: list[tuple[str, dict[str, Any]]], compiled: CompiledCalls) -> list[dict[str, Any]]:
    """The eager latency of the callable that the first run's latency is of: the same torch.compile, the same name."""
    busiest = compiled.busiest()
    pairs = zip(compiled.calls, eager, strict=False)
    return [latency for call, (name, latency) in pairs if call is busiest and name == call.name and latency]


def _run_eagerly(result: Path, program: Program) -> int:
    """The second run, in the child: writes what was measured to `result`."""
    hook = CompiledCalls(variant="eager")
    with ExitStack() as stack:

        def begin() -> None:
            import torch

            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(hook.install(Emit(hook.NAME, lambda record: None)))

        outcome, wall_s = timed(program, begin)
    facts = {
        "code": outcome.code,
        "frames": frames_compiled() if hook.calls else 0,
        "measured": [asdict(row) for row in whole_program("eager", wall_s)],
        "calls": [(call.name, asdict(call.measurement("eager")) if call.clocks else None) for call in hook.calls],
    }
    result.write_text(json.dumps(facts))
    return outcome.code


if __name__ == "__main__":
    sys.exit(_run_eagerly(Path(sys.argv[1]), Program.of_words(sys.argv[2:])))
