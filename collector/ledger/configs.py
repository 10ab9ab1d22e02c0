"""Launchers, times and winners → the configurations of each Triton kernel, and what each became on its way."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionscope.collector.ledger.graph_facts import GraphFacts, root_of
from fusionscope.collector.observations import KernelName, LauncherChosen, LauncherMade, LauncherSeen
from fusionscope.collector.targets.binaries import artifact, resources, sass, spill_bytes
from fusionscope.collector.targets.occupancy import occupancy
from fusionscope.storage.records import KernelCode, KernelConfig

_TEXTS = ("ttir", "ptx", "amdgcn")  # stages of Triton's backends that a reader asks for


@dataclass(frozen=True, slots=True)
class _Call:
    """A kernel's name within the run, and what its first call passes."""

    kernel_id: str
    arguments: tuple[str, ...]


class Configs:
    """Keeps the configurations of a kernel until one is chosen, which happens when it first runs, or to the end."""

    def __init__(self) -> None:
        self._made: dict[KernelName, dict[str, LauncherMade]] = defaultdict(dict)
        self._times: dict[tuple[KernelName, str], float] = {}
        self._chosen: dict[KernelName, str] = {}
        self._calls: dict[KernelName, _Call] = {}
        self._drained: set[KernelName] = set()
        self._code: list[tuple[str, LauncherMade]] = []

    def take(self, seen: LauncherSeen) -> None:
        """Add what was seen: a launcher's first origin and its latest time count."""
        if isinstance(seen, LauncherMade):
            self._made[seen.name].setdefault(seen.config, seen)
        elif isinstance(seen, LauncherChosen):
            self._chosen[seen.name] = seen.config
        else:
            self._times[seen.name, seen.config] = seen.ms

    def graph_ended(self, facts: GraphFacts) -> None:
        """Note the kernels that a graph calls: only these are told of. Kernels of a subgraph are compiled by its root.

        Others are those of candidates for a product, compiled to be benchmarked.
        """
        for line in facts.lines:
            if line.kind == "KernelCallLine" and line.kernel:
                name = KernelName(root_of(facts.graph_id), line.kernel)
                self._calls.setdefault(name, _Call(facts.kernel_id(line.kernel), line.args))

    def drain(self, *, final: bool) -> Iterator[KernelConfig | KernelCode]:
        """Configurations of the kernels whose contest has ended, at the end of all; their code at the end.

        Code is disassembled for what runs, or may run: it takes a quarter of a second each.
        """
        for name in [name for name in self._made if name in self._calls and name not in self._drained]:
            if final or name in self._chosen:
                self._drained.add(name)
                yield from self._rows(name)
        if final:
            for kernel_id, made in self._code:
                yield from _code(kernel_id, made)

    def _rows(self, name: KernelName) -> Iterator[KernelConfig]:
        call, winner = self._calls[name], self._chosen.get(name)
        for made in self._made[name].values():
            chosen = None if winner is None else made.config == winner
            if chosen is not False:
                self._code.append((call.kernel_id, made))
            yield _row(made, call, chosen, self._times.get((name, made.config), math.inf))


def _row(made: LauncherMade, call: _Call, chosen: bool | None, ms: float) -> KernelConfig:
    return KernelConfig(
        kernel_id=call.kernel_id,
        config=made.config,
        num_warps=made.num_warps,
        num_stages=made.num_stages,
        grid=_grid(made, call.arguments),
        registers=made.registers,
        n_spills=made.n_spills,
        shared_bytes=made.shared_bytes,
        chosen=chosen,
        time_us=ms * 1000 if math.isfinite(ms) else None,
        origin=made.origin,
        static_launcher=made.static,
        **_of_binary(made),
    )


def _grid(made: LauncherMade, arguments: tuple[str, ...]) -> str | None:
    """Blocks along x, y, z, by the launcher's own expressions; None where they need what is known at run time only."""
    if made.grid is None:
        return None
    passed = {name: int(value) for name, value in zip(made.parameters, arguments, strict=False) if value.isdecimal()}
    try:
        blocks = made.grid.eval_slow(passed | made.constants)
    except NameError:
        return None
    return ", ".join(map(str, blocks))


def _of_binary(made: LauncherMade) -> dict[str, Any]:
    """The columns that the binary tells; none where Triton's cache has lost it."""
    binary = _binary(made)
    if binary is None or made.registers is None or made.shared_bytes is None:
        return {}
    found = resources(binary, made.architecture)
    shared = made.shared_bytes + found.static_shared_bytes
    fits = occupancy(made.architecture, made.registers, shared, made.num_warps)
    return {
        "spill_bytes": spill_bytes(made.artifacts, found.local_bytes) if _nvidia(made) else None,
        "static_shared_bytes": found.static_shared_bytes,
        "occupancy": fits.fraction if fits else None,
        "occupancy_limit": fits.limit if fits else None,
    }


def _code(kernel_id: str, made: LauncherMade) -> Iterator[KernelCode]:
    for kind in _TEXTS:
        if (path := artifact(made.artifacts, kind)) is not None:
            yield KernelCode(kernel_id=kernel_id, config=made.config, kind=kind, text=path.read_text())
    binary = _binary(made)
    if _nvidia(made) and binary and (text := sass(binary)):
        yield KernelCode(kernel_id=kernel_id, config=made.config, kind="sass", text=text)


def _nvidia(made: LauncherMade) -> bool:
    return made.architecture.startswith("sm_")


def _binary(made: LauncherMade) -> bytes | None:
    path: Path | None = artifact(made.artifacts, "cubin" if _nvidia(made) else "hsaco")
    return path.read_bytes() if path else None
