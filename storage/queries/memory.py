"""What is alive when: peaks under their own names, curves, and the lifetimes of buffers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.graphs import OWN_ORIGINS
from fusionscope.storage.records import MemoryBudget, MemoryResidual, ReuseDecision

# Dynamo's name of where an input comes from: L['self']._modules['norm']._parameters['weight'], G['tables'][0]
_ROOT = re.compile(r"[LG]\['(\w+)'\]")
_HELD = re.compile(r"\._(?:modules|parameters|buffers)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class Curve:
    """A memory timeline and its peak. `graph_id` is empty for curves measured over a whole call of the model."""

    graph_id: str
    basis: str  # estimate, plan, measured
    variant: str
    points: int
    peak_bytes: int  # above the entry of the call
    peak_step: int  # the first step that reaches it
    base_bytes: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """Live bytes after one step of a curve."""

    step: int
    time_us: float | None
    live_bytes: int
    delta_bytes: int | None
    buffer: str | None
    label: str | None


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer from its allocation to its end, with the kernel and the line of the model that made it."""

    buffer: str
    category: str
    bytes: int | None
    shape: tuple[str, ...] | None
    dtype: str | None
    allocated_at: int | None
    last_use: int | None
    freed_at: int | None
    reuses: str | None
    reuse_kind: str | None
    kernel: str | None
    ops: tuple[str, ...]  # FX nodes, the one that it holds first
    file: str | None
    line: int | None
    source_text: str | None
    reason: str | None = None  # why its size is not known, or nothing
    kernel_id: str | None = None  # that writes it first
    ir_node: str | None = None  # scheduler node that writes it first
    placeholder: str | None = None  # of an input: where Dynamo found it

    @property
    def given_as(self) -> str | None:
        """What the program calls an input: `norm.weight` of the module that is compiled, or the name of an argument."""
        root = _ROOT.match(self.placeholder or "")
        if root is None or self.placeholder is None:
            return None
        path = _HELD.sub(r".\1", self.placeholder[root.end() :])
        return path[1:] if root[1] == "self" and path.startswith(".") else root[1] + path

    @property
    def at_entry(self) -> bool:
        """Whether it was there before the call, as inputs and weights are: live_bytes does not count it."""
        return self.allocated_at is None

    def alive_at(self, step: int) -> bool:
        """Allocated before or at `step`, and not freed by then."""
        return (self.allocated_at or 0) <= step and (self.freed_at is None or self.freed_at > step)


@dataclass(frozen=True, slots=True)
class Order:
    """A schedule order that Inductor weighed."""

    method: str
    peak_bytes: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class Donated:
    """A value of the forward that the backward was handed to free, and the buffer that got its memory, if one did."""

    buffer: str
    bytes: int | None
    taken_by: str | None


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """A peak that a run of the model reached."""

    variant: str
    bytes: float
    samples: int
    method: str


def curves(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Curve]:
    """The timelines of one graph, and those measured over a whole call."""
    return fetch(con, Curve, _CURVES, [run_id, graph_id])


def points(con: DuckDBPyConnection, run_id: str, graph_id: str, basis: str, variant: str) -> list[Point]:
    """One timeline, step by step."""
    return fetch(con, Point, _POINTS, [run_id, graph_id, basis, variant])


def lifetimes(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Lifetime]:
    """Buffers of a graph in order of allocation; inputs first."""
    return fetch(con, Lifetime, _LIFETIMES.format(which="true"), [run_id, graph_id])


def lifetimes_at(con: DuckDBPyConnection, run_id: str, graph_id: str, step: int, most: int) -> list[Lifetime]:
    """The largest buffers that are alive after a step, in order of allocation; those of unknown size first of all."""
    chosen = f"rowid IN (SELECT rowid FROM buffers WHERE {_OF_GRAPH} AND {_ALIVE} {_LARGEST} LIMIT $4)"
    return fetch(con, Lifetime, _LIFETIMES.format(which=chosen), [run_id, graph_id, step, most])


def lifetime(con: DuckDBPyConnection, run_id: str, graph_id: str, buffer: str) -> Lifetime | None:
    """The buffer of that name."""
    found = fetch(con, Lifetime, _LIFETIMES.format(which="buffer = $3"), [run_id, graph_id, buffer])
    return found[0] if found else None


def orders(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Order]:
    """Inductor's own estimates: of the order as given, of each order that it tried, and of the one that it chose."""
    return fetch(con, Order, _ORDERS, [run_id, graph_id])


def parts(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[MemoryResidual]:
    """The named parts of the measured peak of a graph, and of the whole step; largest first."""
    return fetch(con, MemoryResidual, _PARTS, [run_id, graph_id])


def budgets(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[MemoryBudget]:
    """What the partitioner would save at each budget that was tried on the joint graph of a forward or backward."""
    return fetch(con, MemoryBudget, _BUDGETS, [run_id, f"{graph_id.split('.')[0]}.joint"])


def reuses(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[ReuseDecision]:
    """Chances to put a buffer into memory that was there, most bytes first, refused ones before taken ones."""
    return fetch(con, ReuseDecision, _REUSES, [run_id, graph_id])


def donated(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Donated]:
    """The saved values that a backward frees, most bytes first; none of another graph."""
    return fetch(con, Donated, _DONATED, [run_id, graph_id])


def measured_peaks(con: DuckDBPyConnection, run_id: str) -> list[MeasuredPeak]:
    """Measured peaks above the entry of the call, one per variant."""
    return fetch(con, MeasuredPeak, _MEASURED, [run_id])


_CURVES = """
SELECT graph_id, basis, variant, count(*) AS points, max(live_bytes) AS peak_bytes,
    min_by(step, (-live_bytes, step)) AS peak_step, max(base_bytes) AS base_bytes
FROM memory_points WHERE run_id = $1 AND graph_id IN ($2, '')
GROUP BY graph_id, basis, variant ORDER BY graph_id DESC, basis, variant
"""

_POINTS = """
SELECT step, time_us, live_bytes, delta_bytes, buffer, label FROM memory_points
WHERE run_id = $1 AND graph_id = $2 AND basis = $3 AND variant = $4 ORDER BY step, time_us
"""

# A buffer is named after the operators that compute it: the origins of the scheduler node that writes it first, and
# for an input its own placeholder.
_OF_GRAPH = "run_id = $1 AND graph_id = $2"
_ALIVE = "coalesce(allocated_at, 0) <= $3 AND coalesce(freed_at > $3, true)"
_LARGEST = "ORDER BY bytes DESC NULLS FIRST, buffer"
# The inputs of Dynamo's graph, in order, are AOTAutograd's primals_1, primals_2, … and Inductor's arg0_1, arg1_1, …
_PLACE = """coalesce(
    try_cast(regexp_extract(node, '^primals_([0-9]+)$', 1) AS BIGINT) - 1,
    try_cast(regexp_extract(node, '^arg([0-9]+)_1$', 1) AS BIGINT)
)"""
_LIFETIMES = f"""
WITH chosen AS (SELECT * FROM buffers WHERE {_OF_GRAPH} AND {{which}}),
made AS (
    SELECT buffer, unnest(coalesce({OWN_ORIGINS}, [buffer])) AS node
    FROM chosen b LEFT JOIN ir_nodes USING (run_id, graph_id, ir_node)
),
described AS (
    SELECT buffer, list(node ORDER BY position DESC) AS ops,
        arg_max(file, position) FILTER (file IS NOT NULL) AS file,
        arg_max(line, position) FILTER (file IS NOT NULL) AS line,
        arg_max(source_text, position) FILTER (file IS NOT NULL) AS source_text
    FROM made JOIN (SELECT * FROM graph_nodes WHERE run_id = $1 AND graph_id = $2) USING (node) GROUP BY buffer
),
given AS (SELECT node AS buffer, {_PLACE} AS place FROM graph_nodes WHERE {_OF_GRAPH} AND op = 'placeholder'),
asked AS (
    SELECT target AS placeholder, shape, row_number() OVER (ORDER BY position) - 1 AS place FROM graph_nodes
    WHERE run_id = $1 AND graph_id = split_part($2, '.', 1) || '.dynamo' AND op = 'placeholder'
),
lifted AS (
    SELECT shape, {_PLACE} AS place FROM graph_nodes
    WHERE run_id = $1 AND graph_id = regexp_replace($2, '[.]backward$', '.forward') AND op = 'placeholder'
),
sound AS (  -- not where inputs were dropped, joined or put before the others: a constant, an alias, a token
    SELECT count(*) = (SELECT count(*) FROM asked) AND bool_and(lifted.shape IS NOT DISTINCT FROM asked.shape) AS so
    FROM lifted LEFT JOIN asked USING (place)
)
SELECT b.buffer, category, b.bytes, b.shape, b.dtype, allocated_at, last_use, freed_at, reuses, reuse_kind,
    k.name AS kernel, coalesce(ops, []) AS ops, file, line, source_text,
    b.reason, b.kernel_id, b.ir_node, placeholder
FROM chosen b LEFT JOIN described USING (buffer)
LEFT JOIN (SELECT buffer, placeholder FROM given JOIN asked USING (place) WHERE (SELECT so FROM sound)) USING (buffer)
LEFT JOIN kernels k USING (run_id, kernel_id)
ORDER BY allocated_at NULLS FIRST, b.bytes DESC NULLS LAST, b.buffer
"""

_ORDERS = """
SELECT method, peak_bytes, chosen FROM memory_orders
WHERE run_id = $1 AND graph_id = $2 ORDER BY chosen DESC, peak_bytes
"""

_PARTS = """
SELECT variant, graph_id, name, bytes, explanation FROM memory_residuals
WHERE run_id = $1 AND graph_id IN ($2, '') ORDER BY graph_id DESC, variant, bytes DESC
"""

_BUDGETS = """
SELECT graph_id, budget, saved_bytes, saved_values, recomputed_ops, recomputed_flops FROM memory_budgets
WHERE run_id = $1 AND graph_id = $2 ORDER BY budget DESC
"""

_REUSES = """
SELECT graph_id, buffer, candidate, kind, verdict, reason, bytes FROM reuse_decisions
WHERE run_id = $1 AND graph_id = $2 ORDER BY verdict, bytes DESC NULLS LAST, buffer
"""

_DONATED = """
SELECT given.buffer, given.bytes, taker.buffer AS taken_by FROM buffers given
LEFT JOIN buffers taker ON (taker.run_id, taker.graph_id, taker.reuses) = (given.run_id, given.graph_id, given.buffer)
WHERE given.run_id = $1 AND given.graph_id = $2 AND given.category = 'saved' AND given.allocated_at IS NULL
    AND given.freed_at IS NOT NULL AND given.reason IS NULL  -- of several views of one block the first
ORDER BY given.bytes DESC NULLS LAST, given.buffer
"""

_MEASURED = """
SELECT variant, median AS bytes, samples, method FROM measurements
WHERE run_id = $1 AND metric = 'peak_bytes' ORDER BY variant
"""
