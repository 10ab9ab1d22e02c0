"""Write a run to a single file that `fusionscope import` takes elsewhere."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fusionscope.collector.commands import DONE, add_store, say
from fusionscope.storage.library import Library, default_address


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope export`."""
    parser.add_argument("run", metavar="RUN", help="id of a run, the beginning of one, or a name (its latest run)")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    add_store(parser)


def run(options: Namespace) -> int:
    """Export one run."""
    library = Library(options.store or default_address())
    run_id = library.find(options.run)
    library.export_run(run_id, options.file)
    say(f"wrote run {run_id} to {options.file}")
    return DONE
