"""Blocks of memory over a measured step or a plan: few enough to draw, exact at the peak, and those alive at a moment.

A library may hold a hundred thousand blocks of a run, so what is drawn is chosen and summed here, not in the page.
"""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.graphs import OWN_ORIGINS
from fusionscope.storage.queries.memory import Lifetime, Point, lifetimes_at

DRAWN = 200  # blocks that are drawn one by one
BINS = 400  # stretches of a curve, each with its lowest and highest point
MOST_PLACED = 20_000  # buffers of a plan that are summed by line


@dataclass(frozen=True, slots=True)
class Scene:
    """What is looked at: the plan of a graph, or a measured step (graph_id empty) of a variant, on one x axis."""

    run_id: str
    graph_id: str
    basis: str  # plan, measured
    variant: str
    axis: str = "order"  # order, time (microseconds since the step began)

    @property
    def params(self) -> list[object]:
        """For the queries below."""
        return [self.run_id, self.graph_id, self.variant]


@dataclass(frozen=True, slots=True)
class Span:
    """A block from its allocation to its end, on the scene's axis. None: from before the step, or beyond its end."""

    key: str  # buffer of the plan; number of the event that allocated a measured block
    name: str
    category: str
    bytes: int
    first: float | None
    last: float | None
    alive_at_peak: bool
    reuses: str | None  # of a plan: the buffer whose memory it took over
    label: str | None  # of a measured block: the wrapper line or the operator


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes of many small blocks together, from this place of the axis on."""

    x: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Block:
    """A measured block that is alive at a moment."""

    key: str
    name: str
    category: str
    phase: str
    bytes: int
    first_event: int | None
    last_event: int | None
    label: str | None
    graph_id: str | None
    buffer: str | None
    kernel: str | None
    op: str | None
    file: str | None
    line: int | None
    source_text: str | None


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of one category that are alive at a moment."""

    category: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Bytes alive at a peak that one source line (or, where none is known, one label) made."""

    file: str | None
    line: int | None
    source_text: str | None
    label: str | None
    bytes: int
    blocks: int


def curve(con: DuckDBPyConnection, scene: Scene, bins: int = BINS) -> list[Point]:
    """The scene's curve: the lowest and highest point of each of `bins` stretches, so the peak is always among them."""
    return fetch(con, Point, _CURVE, [scene.run_id, scene.graph_id, scene.basis, scene.variant, bins])


def drawn(con: DuckDBPyConnection, scene: Scene, peak_step: int) -> list[Span]:
    """Blocks to draw: those alive at the peak that are more than a sliver of it, then the largest of all."""
    sql = f"{_ranked(scene)} SELECT * EXCLUDE rank FROM ranked WHERE rank <= $5"
    return fetch(con, Span, sql, _asked(scene, peak_step))


def band(con: DuckDBPyConnection, scene: Scene, peak_step: int) -> list[Level]:
    """The sum of all blocks that are not drawn, over the axis."""
    return fetch(con, Level, f"{_ranked(scene)} {_BAND}", [*_asked(scene, peak_step), BINS])


def undrawn(con: DuckDBPyConnection, scene: Scene, peak_step: int) -> tuple[int, int]:
    """How many blocks are not drawn, and their bytes at the peak."""
    sql = f"{_ranked(scene)} SELECT count(*), sum(bytes) FILTER (alive_at_peak) FROM ranked WHERE rank > $5"
    row = con.execute(sql, _asked(scene, peak_step)).fetchone()
    return (int(row[0]), int(row[1] or 0)) if row else (0, 0)


def alive(con: DuckDBPyConnection, scene: Scene, event: int, most: int) -> list[Block]:
    """The largest blocks alive after an event of a measured step, those from before it included."""
    return fetch(con, Block, _ALIVE, [scene.run_id, scene.variant, event, most])


def block(con: DuckDBPyConnection, scene: Scene, key: str) -> Block | None:
    """The measured block of a key."""
    found = fetch(con, Block, _ONE, [scene.run_id, scene.variant, key])
    return found[0] if found else None


def shares(con: DuckDBPyConnection, scene: Scene, step: int) -> list[Share]:
    """Bytes alive after a step by category, what was there before included, most first."""
    sql = _PLAN_SHARES if scene.basis == "plan" else _SHARES
    return fetch(con, Share, sql, [*scene.params, step])


def by_source(con: DuckDBPyConnection, scene: Scene, step: int) -> list[Placed]:
    """Bytes alive after a step by the line that made them, most first, without what was there before the call."""
    if scene.basis == "measured":
        return fetch(con, Placed, _BY_SOURCE, [scene.run_id, scene.variant, step])
    alive = lifetimes_at(con, scene.run_id, scene.graph_id, step, MOST_PLACED)
    lines: dict[tuple[str | None, int | None], list[Lifetime]] = {}
    for life in alive:
        if life.at_entry:
            continue
        lines.setdefault((life.file, life.line), []).append(life)
    placed = [_placed(file, line, made) for (file, line), made in lines.items()]
    return sorted(placed, key=lambda found: -found.bytes)


def _placed(file: str | None, line: int | None, made: list[Lifetime]) -> Placed:
    label = made[0].kernel if file is None else None
    return Placed(file, line, made[0].source_text, label, sum(life.bytes or 0 for life in made), len(made))


def _asked(scene: Scene, peak_step: int) -> list[object]:
    return [*scene.params, peak_step, DRAWN]


def _ranked(scene: Scene) -> str:
    """All blocks of the scene on its axis, the first $5 of which are drawn."""
    measured = _EVENT_SPANS if scene.axis == "order" else _TIME_SPANS
    spans = _PLAN_SPANS if scene.basis == "plan" else measured
    return f"WITH spans AS ({spans}), {_RANKED}"


# Alive after step s: allocated at or before it, freed after it.
_PLAN_SPANS = """
SELECT buffer AS key, buffer AS name, category, bytes, allocated_at::DOUBLE AS first, freed_at::DOUBLE AS last,
    coalesce(allocated_at, 0) <= $4 AND coalesce(freed_at > $4, true) AS alive_at_peak,
    reuses, NULL AS label
FROM buffers WHERE run_id = $1 AND graph_id = $2 AND $3 = 'compiled' AND bytes > 0
    AND NOT (allocated_at IS NULL AND freed_at IS NULL)
"""

_NAME = "coalesce(buffer, label, 'block')"
_KEY = "coalesce(first_event::VARCHAR, 'before ' || address, 'before')"
_SPANS = f"""
SELECT {_KEY} AS key, {_NAME} AS name, category, bytes, {{first}} AS first, {{last}} AS last,
    coalesce(first_event, -1) <= $4 AND coalesce(last_event > $4, true) AS alive_at_peak,
    NULL AS reuses, label
FROM allocations WHERE run_id = $1 AND $2 = '' AND variant = $3 AND bytes > 0
    AND NOT (first_event IS NULL AND last_event IS NULL)
"""
_EVENT_SPANS = _SPANS.format(first="first_event::DOUBLE", last="last_event::DOUBLE")
_TIME_SPANS = _SPANS.format(first="start_us", last="end_us")

_RANKED = """
weighed AS (SELECT *, sum(bytes) FILTER (alive_at_peak) OVER () AS peak FROM spans),
ranked AS (
    SELECT * EXCLUDE peak,
        row_number() OVER (ORDER BY (alive_at_peak AND bytes >= peak / 500) DESC, bytes DESC, first, key) AS rank
    FROM weighed
)
"""

_BAND = """
, deltas AS (
    SELECT coalesce(first, 0) AS x, bytes AS delta FROM ranked WHERE rank > $5
    UNION ALL SELECT last, -bytes FROM ranked WHERE rank > $5 AND last IS NOT NULL
),
summed AS (SELECT x, sum(delta)::BIGINT AS delta FROM deltas GROUP BY x),
levels AS (
    SELECT x, (sum(delta) OVER (ORDER BY x))::BIGINT AS bytes,
        (row_number() OVER (ORDER BY x) - 1) * $6 // count(*) OVER () AS bin
    FROM summed
)
SELECT x, bytes FROM levels
QUALIFY row_number() OVER (PARTITION BY bin ORDER BY bytes DESC, x) = 1
    OR row_number() OVER (PARTITION BY bin ORDER BY bytes, x) = 1
ORDER BY x
"""

_CURVE = """
WITH numbered AS (
    SELECT *, row_number() OVER (ORDER BY step, time_us) - 1 AS n, count(*) OVER () AS total
    FROM memory_points WHERE run_id = $1 AND graph_id = $2 AND basis = $3 AND variant = $4
)
SELECT step, time_us, live_bytes, delta_bytes, buffer, label FROM numbered
QUALIFY row_number() OVER (PARTITION BY n * $5 // total ORDER BY live_bytes DESC, step) = 1
    OR row_number() OVER (PARTITION BY n * $5 // total ORDER BY live_bytes, step) = 1
    OR n = 0 OR n = total - 1
ORDER BY step, time_us
"""

_LIVES = "coalesce(first_event, -1) <= {at} AND coalesce(last_event > {at}, true)"

# A block of a wrapper is named after the operator and line that its buffer holds, as a plan's buffer is.
_DESCRIBED = f"""
held AS (SELECT *, rowid AS id FROM allocations WHERE run_id = $1 AND variant = $2 AND {{which}}),
made AS (
    SELECT h.id, h.graph_id, b.kernel_id, unnest({OWN_ORIGINS}) AS node FROM held h
    JOIN buffers b ON (b.run_id, b.graph_id, b.buffer) = (h.run_id, h.graph_id, h.buffer)
    JOIN ir_nodes i ON (i.run_id, i.graph_id, i.ir_node) = (b.run_id, b.graph_id, b.ir_node)
),
described AS (
    SELECT id, any_value(kernel_id) AS kernel_id, arg_max(node, position) AS op,
        arg_max(file, position) FILTER (file IS NOT NULL) AS file,
        arg_max(line, position) FILTER (file IS NOT NULL) AS line,
        arg_max(source_text, position) FILTER (file IS NOT NULL) AS source_text
    FROM made JOIN (SELECT * FROM graph_nodes WHERE run_id = $1) USING (graph_id, node) GROUP BY id
)
"""

_BLOCKS = f"""
WITH {_DESCRIBED}
SELECT {_KEY} AS key, coalesce(buffer, label, 'block') AS name, category, phase, h.bytes, first_event, last_event,
    label, h.graph_id, buffer, k.name AS kernel, d.op, coalesce(d.file, h.file) AS file,
    coalesce(d.line, h.line) AS line, coalesce(d.source_text, h.source_text) AS source_text
FROM held h LEFT JOIN described d USING (id)
LEFT JOIN kernels k ON k.run_id = h.run_id AND k.kernel_id = d.kernel_id
ORDER BY h.bytes DESC, first_event
"""
_ALIVE = _BLOCKS.format(which=_LIVES.format(at="$3")) + " LIMIT $4"
_ONE = _BLOCKS.format(which=f"{_KEY} = $3")

_BY_SOURCE = f"""
WITH {_DESCRIBED.format(which=_LIVES.format(at="$3"))}
SELECT coalesce(d.file, h.file) AS file, coalesce(d.line, h.line) AS line,
    any_value(coalesce(d.source_text, h.source_text)) AS source_text,
    CASE WHEN coalesce(d.file, h.file) IS NULL THEN coalesce(label, category) END AS label,
    sum(h.bytes)::BIGINT AS bytes, count(*) AS blocks
FROM held h LEFT JOIN described d USING (id) WHERE phase <> 'before'
GROUP BY ALL ORDER BY bytes DESC
"""

_SHARES = f"""
SELECT category, sum(bytes)::BIGINT AS bytes, count(*) AS blocks FROM allocations
WHERE run_id = $1 AND $2 = '' AND variant = $3 AND {_LIVES.format(at="$4")} GROUP BY category ORDER BY bytes DESC
"""

_PLAN_SHARES = """
SELECT category, coalesce(sum(bytes), 0)::BIGINT AS bytes, count(*) AS blocks FROM buffers
WHERE run_id = $1 AND graph_id = $2 AND $3 = 'compiled'
    AND coalesce(allocated_at, 0) <= $4 AND coalesce(freed_at > $4, true) GROUP BY category ORDER BY bytes DESC
"""
