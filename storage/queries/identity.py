"""What makes a thing the same in two runs: the operators that it computes and the source lines that these come from.

Names say nothing here: they carry a counter, and split or differently fused work has other names. Line numbers do not
either, since code above moves them: a line is known by its text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries.graphs import OWN_ORIGINS

_SHARED = 0.5  # of the smaller one's operations, above which two things are the same work


@dataclass(frozen=True, slots=True, order=True)
class Op:
    """An operation as both runs name it: by where it comes from, not by its name in the graph."""

    direction: str  # forward, backward, inference
    module_path: str
    file: str = field(compare=False)  # without folders; a file may be renamed
    text: str  # of the source line; file and number where the text is not recorded
    target: str
    ordinal: int  # among those that are else equal, in order of the graph
    line: int = field(default=0, compare=False)

    @property
    def place(self) -> Op:
        """The source line alone: what is left to go by where the operators differ between versions."""
        return Op(self.direction, self.module_path, self.file, self.text, "", 0, self.line)


Things = Mapping[str, frozenset[Op]]  # name in its run -> what it computes


@dataclass(frozen=True, slots=True)
class Pairing:
    """Names on both sides that are the same work, and by what they were matched."""

    a: frozenset[str]
    b: frozenset[str]
    matched_by: str  # operations, source lines, nothing


def match(a: Mapping[str, Collection[Op]], b: Mapping[str, Collection[Op]]) -> list[Pairing]:
    """Pair the things of two runs by what they compute: each is in exactly one pairing.

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


def _keys(side: Mapping[str, Collection[Op]], by_place: bool) -> Things:
    return {name: frozenset(op.place if by_place else op for op in ops) for name, ops in side.items()}


def _equal(a: Things, b: Things) -> list[tuple[str, str]]:
    same: defaultdict[frozenset[Op], list[str]] = defaultdict(list)
    for name, ops in b.items():
        same[ops].append(name)
    return [(x, y) for x, ops in a.items() if ops for y in same[ops]]


def _overlapping(a: Things, b: Things) -> list[tuple[str, str]]:
    """Each with the one on the other side that is most alike, if they share more than half of the smaller."""
    alike = {
        (x, y): len(a[x] & b[y]) / len(a[x] | b[y])
        for x, y in _touching(a, b)
        if len(a[x] & b[y]) > _SHARED * min(len(a[x]), len(b[y]))
    }
    best = [{pair[side]: pair for pair in sorted(alike, key=alike.__getitem__)} for side in (0, 1)]
    return [*best[0].values(), *best[1].values()]


def _touching(a: Things, b: Things) -> Iterator[tuple[str, str]]:
    holders: defaultdict[Op, list[str]] = defaultdict(list)
    for name, ops in b.items():
        for op in ops:
            holders[op].append(name)
    for x, ops in a.items():
        yield from ((x, y) for y in dict.fromkeys(name for op in sorted(ops) for name in holders.get(op, ())))


def _components(links: Iterable[tuple[str, str]]) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Connected parts of the graph whose edges are `links`, each as its names on both sides."""
    parts: list[tuple[set[str], set[str]]] = []
    for x, y in links:
        touching = [part for part in parts if x in part[0] or y in part[1]]
        parts = [part for part in parts if part not in touching]
        parts.append(({x}.union(*(p[0] for p in touching)), {y}.union(*(p[1] for p in touching))))
    return [(frozenset(names_a), frozenset(names_b)) for names_a, names_b in parts]


def ops_of_kernels(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, frozenset[Op]]:
    """Kernel id -> its operations, over all its calls."""
    return _ops(con, _OF_KERNELS, run_id)


def ops_of_groups(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, frozenset[Op]]:
    """`graph_id/group_id` -> the operations of a fusion group of the program's own calls."""
    return _ops(con, _OF_GROUPS, run_id)


def ops_of_nodes(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, frozenset[Op]]:
    """`graph_id/ir_node` -> the operations of a scheduler node."""
    return _ops(con, _OF_NODES, run_id)


def ops_of_buffers(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, frozenset[Op]]:
    """`graph_id/buffer` -> the operations whose value a planned buffer holds."""
    return _ops(con, _OF_BUFFERS, run_id)


def values_of_buffers(con: DuckDBPyConnection, run_id: str) -> defaultdict[str, frozenset[Op]]:
    """`graph_id/buffer` -> the one operation whose result a planned buffer holds: the last of those it is made by."""
    return _ops(con, _VALUES, run_id)


def _ops(con: DuckDBPyConnection, thing: str, run_id: str) -> defaultdict[str, frozenset[Op]]:
    found: defaultdict[str, set[Op]] = defaultdict(set)
    for name, *op in con.execute(f"WITH {_NAMED}, {thing} {_SELECT}", [run_id]).fetchall():
        found[name].add(Op(*op))
    return defaultdict(frozenset, {name: frozenset(ops) for name, ops in found.items()})


_TEXT = "coalesce(trim(source_text), parse_filename(file) || ':' || line, '')"
_NAMED = f"""named AS (
    SELECT graph_id, node, coalesce(direction, '') AS direction, coalesce(module_path, '') AS module_path,
        coalesce(parse_filename(file), '') AS file, {_TEXT} AS text,
        coalesce(n.target, '') AS target,
        row_number() OVER (
            PARTITION BY direction, module_path, {_TEXT}, n.target
            ORDER BY g.position, graph_id, n.position
        ) AS ordinal, coalesce(line, 0) AS line
    FROM (SELECT * FROM graph_nodes WHERE run_id = $1) n JOIN graphs g USING (run_id, graph_id)
    LEFT JOIN (SELECT run_id, compile_id, phase FROM compiles) c USING (run_id, compile_id)
    WHERE g.stage = 'post_grad' AND coalesce(c.phase, 'drive') = 'drive'
),
ir AS (SELECT graph_id, ir_node, unnest({OWN_ORIGINS}) AS node FROM ir_nodes WHERE run_id = $1),
member AS (SELECT graph_id, group_id, unnest(members) AS ir_node FROM fusion_groups WHERE run_id = $1)"""

_SELECT = """
SELECT DISTINCT thing.name, direction, module_path, file, text, target, ordinal, line
FROM thing JOIN named USING (graph_id, node)
"""
_OF_NODES = "thing AS (SELECT graph_id || '/' || ir_node AS name, graph_id, node FROM ir)"
_OF_GROUPS = """thing AS (
    SELECT graph_id || '/' || group_id AS name, graph_id, node FROM member JOIN ir USING (graph_id, ir_node)
)"""
_OF_KERNELS = """call AS (
    SELECT DISTINCT kernel_id, graph_id, unnest(group_ids) AS group_id FROM kernel_calls WHERE run_id = $1
),
thing AS (
    SELECT kernel_id AS name, graph_id, node
    FROM call JOIN member USING (graph_id, group_id) JOIN ir USING (graph_id, ir_node)
)"""
# A placeholder's buffer bears the placeholder's name.
_OF_BUFFERS = """thing AS (
    SELECT graph_id || '/' || buffer AS name, graph_id, coalesce(node, buffer) AS node
    FROM (SELECT * FROM buffers WHERE run_id = $1) LEFT JOIN ir USING (graph_id, ir_node)
)"""
_VALUES = """thing AS (
    SELECT graph_id || '/' || buffer AS name, graph_id, coalesce(n.origins[-1], buffer) AS node
    FROM (SELECT * FROM buffers WHERE run_id = $1) LEFT JOIN (SELECT * FROM ir_nodes WHERE run_id = $1) n
    USING (graph_id, ir_node)
)"""
