"""Record a model file, or one of the sample models: drive it, then measure eager against compiled."""

from __future__ import annotations

import os
import shlex
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from ast import literal_eval
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fusionscope.collector import Recording, record
from fusionscope.collector.commands import (
    DONE,
    CommandError,
    ModelFailed,
    add_recording,
    answer,
    as_json,
    given,
    progress,
    require_store,
    say,
)
from fusionscope.collector.environment import RANK
from fusionscope.collector.first_call import first_calls
from fusionscope.collector.model_file import Build, ModelFile, configured, default_device, load, models_own_code
from fusionscope.collector.ranks import record_ranks
from fusionscope.collector.targets import obstacle, record_in_child
from fusionscope.collector.targets.presence import present, undecided
from fusionscope.collector.variants import TORCHSCRIPT, VARIANTS, besides
from fusionscope.storage.library import Library
from fusionscope.storage.queries.findings import findings
from fusionscope.storage.queries.runs import run_summary

MODES = (
    "default",
    "reduce-overhead",
    "max-autotune",
    "max-autotune-no-cudagraphs",
)  # torch._inductor.list_mode_options
RECORDED_OPTIONS = (
    *("device", "gpu", "mode", "dynamic", "options", "no_measure", "variants", "first_call"),
    *("keep_caches", "stop_after", "strict"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope record`."""
    parser.add_argument(
        "target",
        metavar="FILE.py[:build] | SAMPLE",
        help="a file whose build() returns (callable, inputs, compile_kwargs), or a name of `fusionscope samples`",
    )
    add_recording(parser)
    parser.add_argument("--device", help="default device for the model, such as cpu or cuda")
    parser.add_argument("--target", dest="gpu", metavar="GPU", help="record for a GPU that is not here, such as H200")
    parser.add_argument("--mode", choices=MODES, help="torch.compile's mode")
    parser.add_argument("--dynamic", action=BooleanOptionalAction, help="torch.compile's dynamic")
    parser.add_argument(
        "--option",
        dest="options",
        type=_option,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one of torch.compile's options, such as realize_reads_threshold=1; may be given again",
    )
    parser.add_argument("--no-measure", action="store_true", help="do not measure eager against compiled")
    parser.add_argument(
        "--variants",
        type=_variants,
        default=(),
        metavar="A,B,…",
        help=f"measure these as well: {', '.join(VARIANTS)}",
    )
    parser.add_argument(
        "--first-call",
        action=BooleanOptionalAction,
        help="measure each first call in a process of its own with empty caches (default: where --variants is given, "
        "since it compiles each variant once more from nothing)",
    )
    parser.add_argument("--json", action="store_true", help="print the run id and a summary as JSON")


def run(options: Namespace) -> int:
    """Record one model; raises ModelFailed where it raised, after what was recorded is published."""
    if options.mode and options.options:
        raise CommandError("give --mode or --option: torch.compile takes one of them")
    if options.gpu is not None and present() is None:
        return _for_absent_gpu(options)
    require_store(options.store)
    model = load(options.target)
    if model.ranks > 1 and RANK not in os.environ:
        return record_ranks(model.ranks, options.command_line, options.store)
    run_id, store = record_model(model, options)
    if options.json:
        answer(as_json(summary(run_id, store)))
    return DONE


def record_model(model: ModelFile, options: Namespace) -> tuple[str, Path]:
    """Build a loaded model and record it; returns the run's id and its store. Raises ModelFailed."""
    import torch

    with configured(model.config), default_device(options.device):
        torch.manual_seed(0)  # two recordings of a file see the same numbers
        with models_own_code(f"building {model.name}"):
            built = model.build()
        return _record(model, built, options)


def _for_absent_gpu(options: Namespace) -> int:
    if options.device is not None:
        raise CommandError("give --device or --target: a target is the device already")
    if (problem := obstacle(options.gpu)) is not None:
        raise CommandError(problem)
    return record_in_child(options.gpu, options.command_line)


def _record(model: ModelFile, built: Build, options: Namespace) -> tuple[str, Path]:
    failure: ModelFailed | None = None
    with record(
        options.name or model.name,
        project=options.project,
        group=options.group,
        tags=tuple(options.tags),
        store=options.store,
        mode=options.mode,
        dynamic=options.dynamic,
        source_path=model.path,
        command=shlex.join(["fusionscope", *options.command_line]),
        options=given(options, *RECORDED_OPTIONS),
        keep_caches=options.keep_caches,
        stop_after=options.stop_after,
        strict=options.strict,
    ) as recording:
        try:
            _drive_and_measure(model, built, recording, options)
        except ModelFailed as error:
            recording.fail(str(error))
            failure = error
    if failure is not None:
        raise failure
    return recording.run_id, recording.store


def _drive_and_measure(model: ModelFile, built: Build, recording: Recording, options: Namespace) -> None:
    import torch

    chosen = {"mode": options.mode, "dynamic": options.dynamic, "options": dict(options.options) or None}
    given_here = {key: value for key, value in chosen.items() if value is not None}
    say(f"compiling {model.name} …")
    with models_own_code(model.name):
        compiled = built.model
        if built.compile_kwargs is not None:
            compiled = torch.compile(built.model, **(built.compile_kwargs | given_here))
        model.drive(compiled, built.inputs)
    if present() is not None:
        for status in undecided():
            recording.emit(status)
    elif built.compile_kwargs is None:
        say(f"{model.name} compiles by itself what it wants compiled, so there is no eager twin to measure against")
    elif not options.no_measure:
        _measure(model, built, compiled, recording, options, given_here)


def _measure(
    model: ModelFile,
    built: Build,
    compiled: Any,
    recording: Recording,
    options: Namespace,
    given_here: dict[str, Any],
) -> None:
    with models_own_code(f"measuring {model.name}"), progress() as tell:
        found = recording.compare(
            built.model,
            built.inputs,
            compiled=compiled,
            backward=model.backward,
            variants=options.variants,
            progress=tell,
        )
    if options.first_call if options.first_call is not None else options.variants:
        say("measuring first calls, each in a process of its own")
        others = [name for name in besides(options.variants, options.mode, options.dynamic) if name != TORCHSCRIPT]
        kwargs = {"compiled": given_here, **{name: VARIANTS[name] for name in others}}
        for row in first_calls(options.target, options.device, kwargs, found.latency_us):
            recording.emit(row)


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ArgumentTypeError(f"{text!r} is no KEY=VALUE")
    try:
        return key, literal_eval(value)
    except (ValueError, SyntaxError):  # a word
        return key, value


def _variants(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in VARIANTS]:
        raise ArgumentTypeError(f"there is no variant {unknown[0]!r}: choose from {', '.join(VARIANTS)}")
    return names


def summary(run_id: str, store: Path) -> dict[str, Any]:
    """The run's headline numbers and findings; the id alone while another process imports it."""
    library = Library(store)
    found = library.ask(run_summary, run_id)
    concluded = {"findings": [asdict(finding) for finding in library.ask(findings, run_id)]}
    return asdict(found) | concluded if found else {"run_id": run_id}
