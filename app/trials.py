"""What a finding advises, tried: the run's own command again with one option more, in a process of its own."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fusionscope.storage.records import Run

_started: dict[str, _Process] = {}  # by tag; the module outlives the sessions of the app


@dataclass(frozen=True)
class _Process:
    recorder: subprocess.Popen[bytes]
    told: Path  # its standard error


def tag_of(run_id: str, code: str) -> str:
    """What marks a run as the trial of a finding of another."""
    return f"tries {code} of {run_id}"


def command_of(run: Run, code: str, trial: Sequence[str], store: Path) -> list[str] | None:
    """The command that tries it; None where the run was not recorded by `fusionscope record` in a folder of this host.

    The parser takes the last of an option that is given twice, so what was recorded with may stay as it is.
    """
    words = shlex.split(run.command or "")
    here = run.host == platform.node() and run.cwd is not None and Path(run.cwd).is_dir()
    if not here or words[:2] != ["fusionscope", "record"]:
        return None
    name = f"{run.name}, {shlex.join(trial).removeprefix('--')}"
    more = [*trial, "--name", name, "--tag", tag_of(run.run_id, code), "--store", str(store)]
    return [sys.executable, "-m", "fusionscope.collector.cli", *words[1:], *more]


def start(tag: str, command: Sequence[str], folder: str) -> None:
    """Begin a trial."""
    with tempfile.NamedTemporaryFile(prefix="fusionscope-trial-", delete=False) as told:
        recorder = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told
        )
    _started[tag] = _Process(recorder, Path(told.name))


def running(tag: str) -> bool:
    """Whether a trial is going on."""
    return tag in _started and _started[tag].recorder.poll() is None


def failure(tag: str) -> str | None:
    """The last line that a trial told before it ended with an error."""
    if tag not in _started or not _started[tag].recorder.poll():
        return None
    lines = _started[tag].told.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit code {_started[tag].recorder.returncode}"
