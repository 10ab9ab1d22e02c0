"""The kernels of one run against those of another: the same work on two GPUs, or by two versions of torch or Triton.

Names say nothing here: they carry a counter, and split or differently fused work has other names. A kernel is known by
the operations that it computes and the source lines that these come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries.graphs import OWN_ORIGINS
from fusionscope.storage.queries.rooflines import Judged, judged

_SHARED = 0.5  # of the smaller kernel's operations, above which two kernels do the same work


@dataclass(frozen=True, slots=True, order=True)
class Op:
    """An operation as both runs name it: by where it comes from, not by its name in the graph."""

    direction: str  # forward, backward, inference
    module_path: str
    file: str  # without folders, which differ between machines
    line: int
    target: str
    ordinal: int  # among those that are else equal, in order of the graph

    @property
    def place(self) -> Op:
        """The source line alone: what is left to go by where the operators differ between versions."""
        return Op(self.direction, self.module_path, self.file, self.line, "", 0)


@dataclass(frozen=True, slots=True)
class Match:
    """Kernels of two runs that do the same work; one side is empty where the other run has no such work."""

    a: tuple[Judged, ...]  # in order of rank
    b: tuple[Judged, ...]
    matched_by: str  # operations, source lines, nothing
    ops: tuple[Op, ...]  # of both sides

    @property
    def differs(self) -> tuple[str, ...]:
        """What is not the same on both sides; resources are compared where both have as many kernels."""
        compared = {**_WORK, **_RESOURCES} if len(self.a) == len(self.b) else _WORK
        return tuple(what for what, of in compared.items() if of(self.a) != of(self.b))


Side = tuple[Judged, ...]
_WORK: dict[str, Callable[[Side], object]] = {
    "kernels": len,
    "groups": lambda side: sum(k.row.groups or 0 for k in side),
    "bytes": lambda side: sum((k.row.moved or 0) * k.row.calls for k in side),
}
_RESOURCES: dict[str, Callable[[Side], object]] = {
    "registers": lambda side: sorted(k.row.registers or 0 for k in side),
    "spills": lambda side: sorted(k.row.spill_bytes or 0 for k in side),
    "occupancy": lambda side: sorted(k.row.occupancy or 0.0 for k in side),
}


def kernel_matches(con: DuckDBPyConnection, run_a: str, run_b: str) -> list[Match]:
    """The work of both runs side by side: what differs first, the heaviest on top."""
    kernels_a, ops_a = _kernels(con, run_a), _ops_of_kernels(con, run_a)
    kernels_b, ops_b = _kernels(con, run_b), _ops_of_kernels(con, run_b)
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


def _ops_of_kernels(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, set[Op]]:
    """Kernel id -> its operations, over all its calls."""
    found: defaultdict[str, set[Op]] = defaultdict(set)
    for kernel_id, *op in con.execute(_OPS, [run_id]).fetchall():
        found[kernel_id].add(Op(*op))
    return found


@dataclass(frozen=True, slots=True)
class Pairing:
    """Names of kernels on both sides that do the same work, and by what they were matched."""

    a: frozenset[str]
    b: frozenset[str]
    matched_by: str


def match(a: Mapping[str, Collection[Op]], b: Mapping[str, Collection[Op]]) -> list[Pairing]:
    """Pair the kernels of two runs by what they compute: each kernel is in exactly one pairing.

    First those with equal operations, then each with the one most alike, which puts a kernel beside the pieces that it
    was split into; then the same by source lines alone. What is left is alone on its side.
    """
    left_a, left_b = dict(a), dict(b)
    found: list[Pairing] = []
    for matched_by, by_place in (("operations", False), ("source lines", True)):
        for link in (_equal, _overlapping):
            keys_a, keys_b = (_keys(side, by_place) for side in (left_a, left_b))
            for names_a, names_b in _components(link(keys_a, keys_b)):
                found.append(Pairing(names_a, names_b, matched_by))
                left_a = {name: ops for name, ops in left_a.items() if name not in names_a}
                left_b = {name: ops for name, ops in left_b.items() if name not in names_b}
    alone_a = [Pairing(frozenset({name}), frozenset(), "nothing") for name in left_a]
    return found + alone_a + [Pairing(frozenset(), frozenset({name}), "nothing") for name in left_b]


_Keys = Mapping[str, frozenset[Op]]


def _keys(side: Mapping[str, Collection[Op]], by_place: bool) -> _Keys:
    return {name: frozenset(op.place if by_place else op for op in ops) for name, ops in side.items()}


def _equal(a: _Keys, b: _Keys) -> list[tuple[str, str]]:
    return [(x, y) for x, of_x in a.items() for y, of_y in b.items() if of_x and of_x == of_y]


def _overlapping(a: _Keys, b: _Keys) -> list[tuple[str, str]]:
    """Each kernel with the one on the other side that is most alike, if they share more than half of the smaller."""
    alike = {
        (x, y): len(of_x & of_y) / len(of_x | of_y)
        for x, of_x in a.items()
        for y, of_y in b.items()
        if len(of_x & of_y) > _SHARED * min(len(of_x), len(of_y))
    }
    best = [{pair[side]: pair for pair in sorted(alike, key=alike.__getitem__)} for side in (0, 1)]
    return [*best[0].values(), *best[1].values()]


def _components(links: Iterable[tuple[str, str]]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Connected parts of the graph whose edges are `links`, each as its names on both sides."""
    parts: list[tuple[set[str], set[str]]] = []
    for x, y in links:
        touching = [part for part in parts if x in part[0] or y in part[1]]
        parts = [part for part in parts if part not in touching]
        parts.append(({x}.union(*(p[0] for p in touching)), {y}.union(*(p[1] for p in touching))))
    return [(frozenset(names_a), frozenset(names_b)) for names_a, names_b in parts]


_OPS = f"""
WITH node AS (
    SELECT graph_id, node, coalesce(direction, '') AS direction, coalesce(module_path, '') AS module_path,
        coalesce(parse_filename(file), '') AS file, coalesce(line, 0) AS line, coalesce(n.target, '') AS target,
        row_number() OVER (
            PARTITION BY direction, module_path, parse_filename(file), line, n.target
            ORDER BY g.position, graph_id, n.position
        ) AS ordinal
    FROM graph_nodes n JOIN graphs g USING (run_id, graph_id) WHERE run_id = $1 AND g.stage = 'post_grad'
),
call AS (SELECT DISTINCT kernel_id, graph_id, unnest(group_ids) AS group_id FROM kernel_calls WHERE run_id = $1),
member AS (
    SELECT kernel_id, graph_id, unnest(members) AS ir_node
    FROM call JOIN (SELECT * FROM fusion_groups WHERE run_id = $1) USING (graph_id, group_id)
),
computed AS (
    SELECT DISTINCT kernel_id, graph_id, unnest({OWN_ORIGINS}) AS node
    FROM member JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) USING (graph_id, ir_node)
)
SELECT kernel_id, direction, module_path, file, line, target, ordinal FROM computed JOIN node USING (graph_id, node)
"""
