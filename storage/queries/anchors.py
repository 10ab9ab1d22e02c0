"""What a note is pinned to: an object of a run, described so that other runs know it by what it is and not by its name.

Work is known by its operators and source lines, the peak of a graph's plan by the function that was compiled, a
finding by its code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import partial

from duckdb import DuckDBPyConnection

from fusionscope.storage.database import StorageError
from fusionscope.storage.queries.identity import Op, match, ops_of_buffers, ops_of_groups, ops_of_kernels, ops_of_nodes

Objects = Mapping[str, frozenset[Op]]  # how a run names an object -> what it is


@dataclass(frozen=True, slots=True)
class Anchor:
    """An object of a run as a note holds it."""

    kind: str
    object_id: str
    label: str
    parts: str  # JSON


def anchor_of(con: DuckDBPyConnection, run_id: str, kind: str, object_id: str) -> Anchor:
    """The anchor of an object; raises StorageError where the run has no such object that can be known again."""
    parts = objects(con, run_id, kind).get(object_id)
    if not parts:
        raise StorageError(f"The run {run_id} has no {kind} {object_id!r:.120} that another run could know again.")
    return Anchor(kind, object_id, label(parts), json.dumps([astuple(op) for op in sorted(parts)]))


def find(known: Objects, parts: str) -> str | None:
    """Which of a run's objects is the one that was pinned; None where the run has none like it."""
    wanted = _parsed(parts)
    found = next(pairing.b for pairing in match({"wanted": wanted}, known) if pairing.a)
    return max(sorted(found), key=lambda name: len(known[name] & wanted) / len(known[name] | wanted), default=None)


def _parsed(parts: str) -> frozenset[Op]:
    """Empty for what no anchor is: the note may come from elsewhere."""
    try:
        rows = json.loads(parts)
        return frozenset(
            Op(str(d), str(m), str(f), str(x), str(t), int(n), int(line)) for d, m, f, x, t, n, line in rows
        )
    except (ValueError, TypeError, LookupError):
        return frozenset()


def objects(con: DuckDBPyConnection, run_id: str, kind: str) -> Objects:
    """Everything of one kind that a note on the run may be pinned to."""
    return _OBJECTS[kind](con, run_id)


def label(parts: frozenset[Op]) -> str:
    """`add, gelu at model.py:33`: what an object is, in a few words."""
    ops = sorted(parts, key=lambda op: (op.line, op.ordinal, op.target, op))
    names = list(dict.fromkeys(short_target(op.target) for op in ops))
    places = [f"{op.file}:{op.line}" for op in ops if op.file and op.line]
    named = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
    return f"{named} at {places[-1]}" if places else named


def short_target(target: str) -> str:
    """`add` for aten.add.Tensor, `getitem` for <built-in function getitem>."""
    name = target.removeprefix("<built-in function ").removesuffix(">")
    _, _, after = name.partition(".")
    return (after or name).partition(".")[0]


def _refusals(con: DuckDBPyConnection, run_id: str) -> Objects:
    """`graph_id/a/b` -> what both sides compute, each side marked; a fused node is named after its members: op7_op8."""
    nodes = ops_of_nodes(con, run_id)

    def side(graph_id: str, name: str, mark: str) -> frozenset[Op]:
        ops = (op for member in name.split("_") for op in nodes[f"{graph_id}/{member}"])
        return frozenset(Op(f"{mark} {op.direction}", *astuple(op)[1:]) for op in ops)

    return {f"{g}/{a}/{b}": side(g, a, "a") | side(g, b, "b") for g, a, b in con.execute(_REFUSED, [run_id]).fetchall()}


def _single(sql: str, con: DuckDBPyConnection, run_id: str) -> Objects:
    """Objects that one fact identifies: name, direction, file, text, what."""
    found = con.execute(sql, [run_id]).fetchall()
    return {
        name: frozenset({Op(direction, "", file, text, what, ordinal)})
        for name, direction, file, text, what, ordinal in found
    }


_REFUSED = (
    "SELECT DISTINCT graph_id, a, b FROM fusion_decisions WHERE run_id = ? AND verdict IN ('refused', 'untested')"
)

_PEAKS = """
SELECT graph_id, coalesce(direction, ''), coalesce(parse_filename(file), ''), coalesce(function, ''),
    'peak of the plan',
    row_number() OVER (PARTITION BY direction, file, function ORDER BY position)
FROM graphs LEFT JOIN compiles USING (run_id, compile_id)
WHERE run_id = ? AND stage = 'post_grad' AND coalesce(phase, 'drive') = 'drive'
"""

_FINDINGS = "SELECT code, '', '', code, any_value(title), 1 FROM findings WHERE run_id = ? GROUP BY code"

_OBJECTS: dict[str, Callable[[DuckDBPyConnection, str], Objects]] = {
    "kernel": ops_of_kernels,
    "fusion_group": ops_of_groups,
    "refusal": _refusals,
    "buffer": ops_of_buffers,
    "peak": partial(_single, _PEAKS),
    "finding": partial(_single, _FINDINGS),
}
KINDS = ("run", *_OBJECTS)
