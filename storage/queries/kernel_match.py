"""The kernels of one run against those of another: the same work on two GPUs, or by two versions of torch or Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries.identity import Op, match, ops_of_kernels
from fusionscope.storage.queries.rooflines import Judged, judged


@dataclass(frozen=True, slots=True)
class Match:
    """Kernels of two runs that do the same work; one side is empty where the other run has no such work."""

    a: tuple[Judged, ...]  # in order of rank
    b: tuple[Judged, ...]
    matched_by: str  # operations, source lines, nothing
    ops: tuple[Op, ...]  # of both sides

    @property
    def differs(self) -> tuple[str, ...]:
        """What is not the same on both sides, of what is recorded on both.

        Resources are compared where both have as many kernels.
        """
        compared = {**_WORK, **_RESOURCES} if len(self.a) == len(self.b) else _WORK
        told = {what: (of(self.a), of(self.b)) for what, of in compared.items()}
        return tuple(what for what, (a, b) in told.items() if None not in (a, b) and a != b)


Side = tuple[Judged, ...]


def _known(values: Iterable[float | None]) -> list[float] | None:
    """The values in order; None where one of them is not recorded."""
    found = list(values)
    known = sorted(value for value in found if value is not None)
    return known if len(known) == len(found) else None


def _moved(side: Side) -> float | None:
    moved = _known(k.row.moved and k.row.moved * k.row.calls for k in side)
    return None if moved is None else sum(moved)


_WORK: dict[str, Callable[[Side], object]] = {
    "kernels": len,
    "groups": lambda side: sum(k.row.groups or 0 for k in side),
    "bytes": _moved,
}
_RESOURCES: dict[str, Callable[[Side], object]] = {
    "registers": lambda side: _known(k.row.registers for k in side),
    "spills": lambda side: _known(k.row.spill_bytes for k in side),
    "occupancy": lambda side: _known(k.row.occupancy for k in side),
}


def kernel_matches(con: DuckDBPyConnection, run_a: str, run_b: str) -> list[Match]:
    """The work of both runs side by side: what differs first, the heaviest on top."""
    kernels_a, ops_a = _kernels(con, run_a), ops_of_kernels(con, run_a)
    kernels_b, ops_b = _kernels(con, run_b), ops_of_kernels(con, run_b)
    found = []
    for pair in match({name: ops_a[name] for name in kernels_a}, {name: ops_b[name] for name in kernels_b}):
        side_a = tuple(kernel for name, kernel in kernels_a.items() if name in pair.a)
        side_b = tuple(kernel for name, kernel in kernels_b.items() if name in pair.b)
        ops = set().union(*(ops_a[name] for name in pair.a), *(ops_b[name] for name in pair.b))
        found.append(Match(side_a, side_b, pair.matched_by, tuple(sorted(ops))))
    return sorted(found, key=lambda m: (not m.differs, -max(_weight(m.a), _weight(m.b))))


def _kernels(con: DuckDBPyConnection, run_id: str) -> dict[str, Judged]:
    """Kernel id -> kernel, in order of rank; operators that were timed by name only are none."""
    return {kernel.row.kernel_id: kernel for kernel in judged(con, run_id) if kernel.row.kernel_id}


def _weight(side: Side) -> float:
    return sum(kernel.weight_us or 0.0 for kernel in side)
