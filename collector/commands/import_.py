"""Take a run or a memory snapshot into the library; without a path, take the finished recordings of the inbox."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fusionscope.collector.commands import BAD_INPUT, DONE, add_store, say
from fusionscope.collector.importers import memory_snapshot
from fusionscope.storage.library import Library, default_address

PATHS = "what `export` wrote, a run bundle, or a pickle of torch.cuda.memory._dump_snapshot"


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope import`."""
    parser.add_argument("path", metavar="PATH", type=Path, nargs="?", help=PATHS)
    add_store(parser)


def run(options: Namespace) -> int:
    """Import, and say what came in and what did not."""
    library = Library(options.store or default_address())
    if options.path:
        snapshot = memory_snapshot.is_snapshot(options.path)
        take = memory_snapshot.import_snapshot if snapshot else Library.import_path
        say(f"imported run {take(library, options.path)} into {library.path}")
        return DONE
    report = library.import_inbox()
    say(f"imported {len(report.imported)} run(s) into {library.path}" + "".join(f"\n  {r}" for r in report.imported))
    if report.waiting:
        say(f"{report.waiting} recording(s) wait: another import is in progress")
    for name, sentence in report.rejected:
        say(f"{name} was left where it is: {sentence}")
    return BAD_INPUT if report.rejected else DONE
