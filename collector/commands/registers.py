"""Tell what each operation of a fused kernel costs in registers: compile its group again without it, once for each.

For runs that were recorded with --target. Nothing is run or timed.
"""

from __future__ import annotations

import io
import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import chdir, nullcontext, redirect_stderr
from dataclasses import asdict, dataclass
from pathlib import Path

from duckdb import DuckDBPyConnection

from fusionscope.collector.commands import (
    DONE,
    CommandError,
    add_store,
    answer,
    as_json,
    opened,
    progress,
    record,
)
from fusionscope.collector.model_file import load
from fusionscope.collector.targets import obstacle, record_in_child
from fusionscope.collector.targets.cuts import cut
from fusionscope.collector.targets.presence import present
from fusionscope.storage.library import Library
from fusionscope.storage.queries import fusion, kernels, overview
from fusionscope.storage.queries.fusion import Member
from fusionscope.storage.queries.kernels import KernelRow
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.records import Run
from fusionscope.storage.text import bytes_, table

HEAD = ("without", "registers", "spills", "occupancy", "limited by", "bytes moved", "kernels")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a group became: whole, or with one operation kept out."""

    without: str | None  # the scheduler node that is kept out
    computes: tuple[str, ...]  # its FX nodes
    registers: int | None  # of the kernel that holds most of the rest, in its configuration of lowest occupancy
    spill_bytes: int | None
    occupancy: float | None
    occupancy_limit: str | None
    moved: int | None  # bytes that all kernels with a part of the group move
    kernels: int  # that hold a part of the group


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope registers`."""
    parser.add_argument("run", metavar="RUN", help="id of a run, the beginning of one, or a name (its latest run)")
    parser.add_argument("kernel", metavar="KERNEL", help="name or id of one of its Triton kernels")
    add_store(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print a line for the kernel as it is and one for each operation that is kept out of it."""
    library = opened(options.store)
    recorded = library.ask(overview.run, library.find(options.run))
    recorded_with = _recorded_with(recorded)
    kernel = _kernel(library, recorded, options.kernel)
    group = library.ask(_members, recorded.run_id, kernel)
    if present() is None:
        if (problem := obstacle(recorded.device_name or "")) is not None:
            raise CommandError(problem)
        return record_in_child(recorded.device_name or "", options.command_line)
    with chdir(recorded.cwd or "."):
        found = list(_compiled(recorded_with, kernel, group))
    answer(as_json(list(map(asdict, found))) if options.json else table(HEAD, map(_row, found)))
    return DONE


def _recorded_with(run: Run) -> Namespace:
    """The options of the `record` that made a run for a target. Raises CommandError for any other run."""
    words = shlex.split(run.command or "")
    if run.device_kind != "target" or words[:2] != ["fusionscope", "record"]:
        raise CommandError(f"run {run.run_id} was not recorded by `fusionscope record … --target GPU`")
    if not Path(run.cwd or ".").is_dir():
        raise CommandError(f"run {run.run_id} was recorded in {run.cwd}, which is not here")
    parser = ArgumentParser()
    record.add_arguments(parser)
    return parser.parse_args(words[2:], Namespace(command_line=words[1:]))


def _kernel(library: Library, run: Run, name: str) -> KernelRow:
    known = [row for row in library.ask(kernels.kernels, run.run_id) if row.configs]
    found = [row for row in known if name in (row.name, row.kernel_id)]
    if len(found) != 1:
        names = ", ".join(str(row.kernel_id) for row in found or known)
        raise CommandError(
            f"{'several kernels are' if found else 'there is no Triton kernel'} {name!r}: give one of {names}"
        )
    return found[0]


def _members(con: DuckDBPyConnection, run_id: str, kernel: KernelRow) -> list[Member]:
    """The scheduler nodes of the kernel's first call. Raises CommandError where there is nothing to keep out."""
    calls = kernels.calls(con, run_id, str(kernel.kernel_id))
    groups = calls[0].group_ids if calls else ()
    found = [m for group in groups for m in fusion.members(con, run_id, str(kernel.graph_id), group)]
    if len(found) < 2:
        raise CommandError(f"{kernel.name} was not fused: it computes a single scheduler node")
    return found


def _compiled(recorded_with: Namespace, kernel: KernelRow, group: list[Member]) -> Iterator[Compiled]:
    """The group as it is, then without each of its scheduler nodes; every time the model is recorded anew."""
    import torch

    model, names, graph_id = load(recorded_with.target), {member.ir_node for member in group}, str(kernel.graph_id)
    with tempfile.TemporaryDirectory() as folder, progress() as tell:
        for number, without in enumerate([None, *group]):
            tell(f"compiling {kernel.name}, {number} of {len(group)} without one")
            torch._dynamo.reset()
            recorded_with.store = Path(folder) / str(number)
            kept_out = cut(graph_id, without.ir_node, names - {without.ir_node}) if without else nullcontext()
            with kept_out, redirect_stderr(io.StringIO()):
                record.record_model(model, recorded_with)
            yield Library(recorded_with.store).ask(_outcome, graph_id, names, without)


def _outcome(con: DuckDBPyConnection, graph_id: str, names: set[str], without: Member | None) -> Compiled:
    (run,) = library_runs(con)
    rest = names - {without.ir_node} if without else names
    held = {k: nodes & names for k, nodes in kernels.nodes(con, run.run_id, graph_id).items() if nodes & names}
    rows = {row.kernel_id: row for row in kernels.kernels(con, run.run_id)}
    largest = rows[max(held, key=lambda kernel_id: len(held[kernel_id] & rest))]
    moved = [rows[kernel_id].moved for kernel_id in held]
    return Compiled(
        without.ir_node if without else None,
        without.origins if without else (),
        largest.registers,
        largest.spill_bytes,
        largest.occupancy,
        largest.occupancy_limit,
        None if None in moved else sum(count or 0 for count in moved),
        len(held),
    )


def _row(found: Compiled) -> tuple[object, ...]:
    without = "nothing" if found.without is None else f"{found.without} ({', '.join(found.computes[-3:])})"
    occupancy = None if found.occupancy is None else f"{found.occupancy:.0%}"
    spills, moved = bytes_(found.spill_bytes), bytes_(found.moved)
    return without, found.registers, spills, occupancy, found.occupancy_limit, moved, found.kernels
