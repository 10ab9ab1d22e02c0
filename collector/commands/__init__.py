"""The subcommands of `fusionscope`, one file each: `add_arguments(parser)` and `run(args) -> exit code`."""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fusionscope.storage.database import Locked, NotWritable, writable
from fusionscope.storage.library import Library, default_address

DONE, CHECK_FAILED, BAD_INPUT, MODEL_FAILED = range(4)  # exit codes


class CommandError(Exception):
    """Bad arguments or input; the message is one sentence for the user."""


class ModelFailed(Exception):
    """The model given to `record` raised; its traceback was shown, and the message is the sentence after it."""


def add_store(parser: ArgumentParser) -> None:
    """The option that names the library."""
    parser.add_argument(
        "--store", metavar="DIR", type=Path, help="folder of the library ($FUSIONSCOPE_STORE, else ./fusionscope-store)"
    )


def add_recording(parser: ArgumentParser) -> None:
    """The options that `record` and `run` share."""
    add_store(parser)
    parser.add_argument("--name", help="name of the run (default: the file's or the model's)")
    parser.add_argument("--project", help="project that the run belongs to")
    parser.add_argument("--group", help="runs of one group, such as those of a sweep, share a line of the library")
    parser.add_argument("--tag", dest="tags", metavar="TAG", action="append", default=[], help="a tag; may be repeated")
    parser.add_argument(
        "--keep-caches", action="store_true", help="leave torch's compile caches on: a hit hides decisions"
    )
    parser.add_argument("--stop-after", metavar="N", type=positive, help="stop after N compiles")
    parser.add_argument("--strict", action="store_true", help="raise what goes wrong inside a hook")


def positive(text: str) -> int:
    """An argument that counts from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number from 1")
    return int(text)


def given(options: Namespace, *names: str) -> str:
    """The options that were set, as the JSON of runs.options."""
    return json.dumps({name: getattr(options, name) for name in names if getattr(options, name)})


def say(text: str) -> None:
    """Tell the user something that is no result: on standard error."""
    sys.stderr.write(f"fusionscope: {text}\n")
    sys.stderr.flush()


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Tell what is going on, as "subject, detail": a line redrawn in place on a terminal, else a line per subject."""
    terminal, told = sys.stderr.isatty(), set[str]()

    def tell(text: str) -> None:
        subject = text.partition(",")[0]
        if terminal:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
        elif subject not in told:
            say(subject)
        told.add(subject)

    try:
        yield tell
    finally:
        sys.stderr.write("\r\x1b[K" if terminal and told else "")


def answer(text: str) -> None:
    """Give the result of a command: on standard output."""
    sys.stdout.write(f"{text}\n")


def as_json(value: Any) -> str:
    """JSON of plain values and rows; times are ISO 8601."""
    return json.dumps(value, indent=2, default=str)


def opened(store: Path | None) -> Library:
    """The library of a store with the runs of its inbox taken in. Raises CommandError where there is none yet."""
    library = Library(store or default_address())
    if not library.store.is_dir():
        raise CommandError(f"there is no library at {library.store}: `fusionscope record mlp_parameters` makes one")
    with suppress(NotWritable):  # a library on a read-only disk can be read as it is
        for name, sentence in library.import_inbox().rejected:
            say(f"{name} was not imported: {sentence}")
        library.conclude_older()
    return library


def require_store(store: Path | None) -> None:
    """Raise StorageError before anything is run, where a store could not take the recording or is a newer version's."""
    library = Library(store or default_address())
    with writable(library.store):
        library.inbox.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=library.inbox).close()
    if library.path.exists():
        with suppress(Locked):  # an import is in progress: the run can wait in the inbox
            library.ask(lambda con: None)


def port_number(text: str) -> int:
    """An argument that names a TCP port."""
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is no port from 1 to 65535")
    return int(text)
