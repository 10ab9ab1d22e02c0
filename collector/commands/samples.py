"""List the sample models that `fusionscope record NAME` takes, with what to look for in each; or record them all.

Beside them stand runs that were recorded on a GPU: where there is none, they show the screens of one.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from fusionscope.collector.commands import DONE, MODEL_FAILED, add_store, answer, as_json, require_store, say
from fusionscope.sample_models import RECORDED_ON_GPU, SAMPLES, WANT_GPU, look_for
from fusionscope.storage.library import Library, default_address
from fusionscope.storage.queries.runs import library_runs

BAR = 20  # characters


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope samples`."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print JSON")
    what.add_argument(
        "--record",
        action="store_true",
        help="record those that the library does not hold yet, and import the runs of a GPU",
    )
    add_store(parser)


def run(options: Namespace) -> int:
    """Print one line per sample model, or record them."""
    if options.record:
        return record_missing(options.store or default_address())
    samples = {name: look_for(name) for name in SAMPLES}
    width = max(map(len, samples))
    answer(as_json(samples) if options.json else "\n".join(f"{n:{width}}  {text}" for n, text in samples.items()))
    return DONE


def record_missing(store: Path) -> int:
    """Record, each in a process of its own, the samples of which the library holds no complete run; import the rest."""
    require_store(store)
    library = Library(store)
    library.import_inbox()
    for run in RECORDED_ON_GPU:
        library.import_path(run)
    held = {run.name for run in library.ask(library_runs) if run.status == "complete"}
    missing = [name for name in suited() if name not in held]
    failed = [name for name in _with_progress(missing) if not _recorded(name, store)]
    if failed:
        say(f"these samples failed: {', '.join(failed)}; `fusionscope record NAME` shows why")
    return MODEL_FAILED if failed else DONE


def suited() -> list[str]:
    """The samples that this machine records within a minute or so."""
    import torch

    return [name for name in SAMPLES if torch.cuda.is_available() or name not in WANT_GPU]


def _with_progress(names: list[str]) -> Iterator[str]:
    """Yield each name under a progress bar on standard error, redrawn in place on a terminal."""
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    for done, name in enumerate([*names, "all recorded"] if names else []):
        filled = BAR * done // len(names)
        sys.stderr.write(f"{start}[{'#' * filled:-<{BAR}}] {done}/{len(names)} sample models: {name}{end}")
        sys.stderr.flush()
        if done < len(names):
            yield name
    sys.stderr.write("\n" if names and not end else "")


def _recorded(name: str, store: Path) -> bool:
    command = [sys.executable, "-m", "fusionscope.collector.cli", "record", name, "--store", str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(f"\n{done.stderr}")
    return done.returncode == 0
