"""The `fusionscope` command: finds the subcommand, imports it, and turns what goes wrong into one sentence."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn

from fusionscope.collector.commands import BAD_INPUT, MODEL_FAILED, CommandError, ModelFailed, say
from fusionscope.storage.database import StorageError

COMMANDS = {
    "record": "record a model file or a sample model, and measure it eager against compiled",
    "run": "run a script of your own, unchanged, with recording on",
    "samples": "list the sample models",
    "list": "list the recorded runs",
    "show": "show what a run recorded",
    "registers": "tell what each operation of a fused kernel costs in registers, for a GPU that is not here",
    "diff": "compare two runs, and fail where one is worse than it may be",
    "export": "write a run to a file",
    "import": "take runs from a file, and finished recordings from the inbox, into the library",
    "check": "check that the library is consistent",
    "app": "serve the dashboard",
}
KEYWORDS = {"import": "import_"}  # a module cannot bear a keyword's name


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is, then exit with 2."""
        say(f"{message} (see `{self.prog} --help`)")
        sys.exit(BAD_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit code. Bad input is one sentence on standard error and the code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    chosen = command_line().parse_args(words)
    command = import_module(f"fusionscope.collector.commands.{KEYWORDS.get(chosen.command, chosen.command)}")
    parser = Parser(prog=f"fusionscope {chosen.command}", description=command.__doc__, allow_abbrev=False)
    command.add_arguments(parser)
    options = parser.parse_args(chosen.arguments, argparse.Namespace(command_line=words))

    try:
        return int(command.run(options))
    except (CommandError, StorageError) as error:
        say(str(error))
        return BAD_INPUT
    except ModelFailed as error:
        say(str(error))
        return MODEL_FAILED


def command_line() -> Parser:
    """The parser of the first word; the rest belongs to the subcommand."""
    names = "\n".join(f"  {name:11}{what}" for name, what in COMMANDS.items())
    parser = Parser(
        prog="fusionscope",
        description="Record what torch.compile decides, and see it.",
        epilog=f"commands:\n{names}\n\n`fusionscope COMMAND --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="fusionscope COMMAND …",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('fusionscope')}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
