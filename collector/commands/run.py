"""Run a script of yours as `python` does, unchanged, with recording on; what is ours goes to standard error."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack
from pathlib import Path

from fusionscope.collector import Recording, record
from fusionscope.collector.commands import DONE, CommandError, add_recording, as_json, given, require_store, say
from fusionscope.collector.commands.record import summary
from fusionscope.collector.hooks import HOOKS
from fusionscope.collector.hooks.compiled_calls import CompiledCalls
from fusionscope.collector.program_run import RECORDED, NotCompared, Start, eager_counterparts, timed, whole_program
from fusionscope.collector.script import Outcome, Program, own_frames, show

RECORDED_OPTIONS = ("compare", "keep_caches", "stop_after", "strict")


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope run`; they stand before the program, whose own arguments follow it."""
    parser.usage = "fusionscope run [OPTIONS] SCRIPT.py [ARGS] | -m MODULE [ARGS]"
    add_recording(parser)
    parser.add_argument(
        "--compare", action="store_true", help="then run the program a second time, eagerly, and measure both"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the run id and a summary to a file as JSON")
    parser.add_argument("-m", dest="is_module", action="store_true", help="the program is a module")
    # one positional: argparse would take a "--" that follows a separate SCRIPT.py for its own
    parser.add_argument("words", metavar="SCRIPT.py [ARGS]", nargs=argparse.REMAINDER, help="the program")


def run(options: Namespace) -> int:
    """Run the program and return its own exit code."""
    if not options.words:
        raise CommandError("give a script, or -m and a module")
    program = Program(options.words[0], tuple(options.words[1:]), options.is_module)
    program.check()
    require_store(options.store)
    try:
        return Session(options, program).run()
    except KeyboardInterrupt as stop:
        show(stop.with_traceback(own_frames(stop.__traceback__)))
        sys.excepthook = lambda *error: None  # shown already; python now ends itself by SIGINT, as it would have
        raise


class Session:
    """One run of a program with a recording around it, from the moment that the program has imported torch."""

    def __init__(self, options: Namespace, program: Program) -> None:
        self.options = options
        self.start = Start(program)
        self.calls = CompiledCalls()
        self.recording: Recording | None = None
        self.code = DONE

    def run(self) -> int:
        """Run the program; record what it compiles; with --compare run it again. Returns the program's exit code."""
        process = os.getpid()
        with ExitStack() as stack:  # StopRecording ends here: the program was stopped as asked
            outcome, wall_s = timed(self.start.program, lambda: self._begin(stack))
            self.code = outcome.code
            if os.getpid() == process:  # else the program forked, and this is the child at its end
                self._report(outcome, wall_s)
        if self.options.json and self.recording and os.getpid() == process:
            self.options.json.write_text(as_json(summary(self.recording.run_id, self.recording.store)))
        return self.code

    def _begin(self, stack: ExitStack) -> None:
        program, options = self.start.program, self.options
        self.recording = stack.enter_context(
            record(
                options.name or Path(program.target).stem,
                project=options.project,
                group=options.group,
                tags=tuple(options.tags),
                store=options.store,
                source_path=program.file,
                command=shlex.join(["fusionscope", *options.command_line]),
                options=given(options, *RECORDED_OPTIONS),
                keep_caches=options.keep_caches,
                stop_after=options.stop_after,
                strict=options.strict,
                hooks=[*HOOKS, self.calls],
            )
        )

    def _report(self, outcome: Outcome, wall_s: float) -> None:
        """Add what was measured to the recording, and how the program ended."""
        if self.recording is None:
            say("the program never imported torch: nothing was recorded")
            return
        for row in whole_program("compiled", wall_s, RECORDED):
            self.recording.emit(row)
        if error := outcome.error:
            self.recording.fail(f"the program ended with {type(error).__name__}: {error}".splitlines()[0])
        elif outcome.code:
            self.recording.fail(f"the program exited with code {outcome.code}")
        elif self.options.compare:
            self._compare(self.recording)

    def _compare(self, recording: Recording) -> None:
        say("running the program again, eagerly; its standard output goes to standard error")
        try:
            for row in eager_counterparts(self.start, self.code, self.calls):
                recording.emit(row)
        except NotCompared as reason:
            say(f"not compared: {reason}")
