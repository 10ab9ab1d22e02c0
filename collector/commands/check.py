"""Check that the library is consistent: exit code 1, with one sentence per fault, where it is not."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from fusionscope.collector.commands import CHECK_FAILED, DONE, add_store, answer
from fusionscope.storage.library import Library, default_address


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope check`."""
    add_store(parser)


def run(options: Namespace) -> int:
    """Print the library's faults."""
    library = Library(options.store or default_address())
    faults = library.check()
    answer("\n".join(faults) if faults else f"{library.path} is consistent.")
    return CHECK_FAILED if faults else DONE
