"""Write a run to a single file that `fusionscope import` takes elsewhere, or to a page that any browser opens."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fusionscope.collector.commands import DONE, add_store, say
from fusionscope.storage import report
from fusionscope.storage.database import writable
from fusionscope.storage.library import Library, default_address
from fusionscope.storage.run_report import run_sections


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope export`."""
    parser.add_argument("run", metavar="RUN", help="id of a run, the beginning of one, or a name (its latest run)")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write")
    add_store(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--no-source", action="store_true", help="leave out code, folders, host names and notes")
    form.add_argument("--html", action="store_true", help="write a report as one offline page instead")


def run(options: Namespace) -> int:
    """Export one run."""
    library = Library(options.store or default_address())
    run_id = library.find(options.run)
    if options.html:
        parts = library.ask(run_sections, run_id)
        with writable(options.file):
            options.file.write_text(report.as_html(parts[0].title, parts), encoding="utf-8")
    else:
        library.export_run(run_id, options.file, source=not options.no_source)
    say(f"wrote run {run_id} to {options.file}")
    return DONE
