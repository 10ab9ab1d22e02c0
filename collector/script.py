"""Run a script or module the way `python` itself would, so that recording changes nothing about it."""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType

from fusionscope.collector.commands import CommandError

_NOT_THE_USERS = (f"{Path(__file__).parent}{os.sep}", "<frozen importlib")


@dataclass(frozen=True, slots=True)
class Program:
    """What `python TARGET ARGUMENTS` or `python -m TARGET ARGUMENTS` would run."""

    target: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @classmethod
    def of_words(cls, words: list[str]) -> Program:
        """The program that the words of a command line name, as `words` gives them."""
        is_module = words[0] == "-m"
        target, *arguments = words[is_module:]
        return cls(target, tuple(arguments), is_module)

    @property
    def words(self) -> list[str]:
        """The program as words of a command line."""
        return [*(["-m"] if self.is_module else []), self.target, *self.arguments]

    @property
    def file(self) -> str | None:
        """Absolute path of a script; None for a module, which only an import could locate."""
        return None if self.is_module else str(Path(self.target).absolute())

    def check(self) -> None:
        """Raise CommandError, in one sentence, where the script or module is not there."""
        path = Path(self.target)
        if self.is_module:
            _set_first_path(str(Path.cwd()))
            _find(self.target.partition(".")[0])  # the outermost package only: to look further would import it
            return
        if path.is_file() and os.access(path, os.R_OK):
            return
        what = "is a folder" if path.is_dir() else "cannot be read" if path.exists() else "does not exist"
        raise CommandError(f"{self.target} {what}: give a script, or -m and a module")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended: its exit code, and the exception that ended it if nothing caught it."""

    code: int
    error: Exception | None = None


def execute(program: Program) -> Outcome:
    """Run the program as `__main__` in this process, with its own sys.argv and sys.path.

    `sys.exit` and uncaught exceptions become the exit code that python gives; the traceback shows the program's
    frames only. Whatever else ends it, such as KeyboardInterrupt, passes through.
    """
    try:
        _run(program)
    except SystemExit as stop:
        return Outcome(_exit_code(stop.code))
    except CommandError:
        raise
    except Exception as error:  # noqa: BLE001 - a program may raise anything, and python reports it just so
        show(error.with_traceback(own_frames(error.__traceback__)))
        return Outcome(1, error)
    return Outcome(0)


def show(error: BaseException) -> None:
    """Show an uncaught exception with the traceback that it bears, as python would, or as the program has it shown."""
    sys.excepthook(type(error), error, error.__traceback__)


def own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames at its outer end that are the collector's, or importlib's at its behest."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        traceback = traceback.tb_next
    return traceback


def _run(program: Program) -> None:
    code, main = _module(program) if program.is_module else _script(program)
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main  # pickle and multiprocessing look the program's names up there
    exec(code, main.__dict__)


def _script(program: Program) -> tuple[CodeType, ModuleType]:
    path = str(Path(program.target).absolute())
    sys.argv = [program.target, *program.arguments]
    _set_first_path(str(Path(path).resolve().parent))
    main = ModuleType("__main__")
    main.__file__, main.__loader__ = path, SourceFileLoader("__main__", path)
    main.__dict__.update(__cached__=None, __package__=None, __spec__=None)
    with io.open_code(path) as source:
        return compile(source.read(), path, "exec", dont_inherit=True), main


def _module(program: Program) -> tuple[CodeType, ModuleType]:
    sys.argv = ["-m", *program.arguments]  # what python shows while it looks for the module
    _set_first_path(str(Path.cwd()))
    spec = _find_main(program.target)
    code = getattr(spec.loader, "get_code", lambda name: None)(spec.name)
    if code is None:
        raise CommandError(f"the module {program.target} has no Python code to run")
    sys.argv[0] = spec.origin or program.target
    main = ModuleType("__main__")
    main.__file__, main.__loader__, main.__spec__, main.__package__ = spec.origin, spec.loader, spec, spec.parent
    main.__dict__["__cached__"] = spec.cached
    return code, main


def _find_main(name: str) -> ModuleSpec:
    """The spec of what `python -m` runs: the module, of a package its `__main__` (runpy._get_module_details)."""
    spec = _find(name)
    return _find(f"{name}.__main__") if spec.submodule_search_locations is not None else spec


def _find(name: str) -> ModuleSpec:
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if not f"{name}.".startswith(f"{error.name}."):
            raise  # a package on the way was found, and something that it imports was not
        spec = None
    if spec is None:
        raise CommandError(f"there is no module {name} on the path")
    return spec


def _set_first_path(folder: str) -> None:
    """Put the program's folder where python found ours; with PYTHONSAFEPATH or -P python adds none."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _exit_code(code: object) -> int:
    """What python makes of the argument of sys.exit (Python/pythonrun.c, handle_system_exit)."""
    if code is None or isinstance(code, int):
        return int(code or 0)
    sys.stderr.write(f"{code}\n")
    return 1
