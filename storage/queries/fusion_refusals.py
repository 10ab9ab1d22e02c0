"""The worklist: which refusals left data to go through memory, one row per reason and line of the model."""

from __future__ import annotations

from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.fusion import MEMBER


@dataclass(frozen=True, slots=True)
class Refusal:
    """The pairs of final groups that one reason kept apart at one line of the model.

    bytes: what each second group would have spared by a fusion with its best partner, added up. For a producer and its
    consumer that is the buffers that were handed over through memory, each read once; for others what both touch.
    """

    verdict: str  # refused, legal, untested: the last word on the pair
    reason_code: str | None
    reason: str | None
    refused_by: str | None
    direction: str
    file: str | None  # of the last op of the second side
    line: int | None
    source_text: str | None
    pairs: int
    bytes: int | None
    a: str  # final groups of the pair with most bytes
    b: str
    a_ops: tuple[str, ...]
    b_ops: tuple[str, ...]


def worklist(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Refusal]:
    """Pairs that ended in different groups, by what they cost."""
    return fetch(con, Refusal, _WORKLIST, [run_id, graph_id])


# The last word on a pair of final groups is that of the latest round in which parts of both met.
_WORKLIST = f"""
WITH {MEMBER},
side AS (
    SELECT name, min(group_id) AS group_id FROM (
        SELECT name, unnest(string_split(name, '_')) AS ir_node FROM (
            SELECT a AS name FROM fusion_decisions WHERE run_id = $1 AND graph_id = $2
            UNION SELECT b FROM fusion_decisions WHERE run_id = $1 AND graph_id = $2
        )
    ) JOIN member USING (ir_node) GROUP BY name
),
met AS (
    SELECT d.*, x.group_id AS ga, y.group_id AS gb
    FROM fusion_decisions d JOIN side x ON x.name = d.a JOIN side y ON y.name = d.b
    WHERE run_id = $1 AND graph_id = $2 AND ga <> gb
),
last AS (
    SELECT * FROM met
    QUALIFY row_number() OVER (
        PARTITION BY least(ga, gb), greatest(ga, gb)
        ORDER BY round DESC, verdict = 'refused' DESC, shared_bytes DESC NULLS LAST
    ) = 1
),
passed AS (
    SELECT DISTINCT s.group_id AS src, d.group_id AS dst, buffer, bytes
    FROM ir_edges e JOIN member s ON s.ir_node = e.src JOIN member d ON d.ir_node = e.dst
    WHERE run_id = $1 AND graph_id = $2 AND coalesce(materialised, true) AND s.group_id <> d.group_id
),
handed AS (
    SELECT least(src, dst) AS first, greatest(src, dst) AS second, sum(bytes)::BIGINT AS bytes
    FROM passed GROUP BY first, second
),
described AS (
    SELECT group_id, list(fx ORDER BY place, fx) AS ops, arg_max(file, place) AS file,
        arg_max(line, place) FILTER (file IS NOT NULL) AS line
    FROM (SELECT DISTINCT group_id, fx, place, file, line FROM origin) GROUP BY group_id
),
text AS (
    SELECT file, line, any_value(source_text) AS source_text FROM fx_node WHERE file IS NOT NULL GROUP BY file, line
),
costed AS (
    SELECT last.*, y.file, y.line, x.ops AS a_all, y.ops AS b_all,
        CASE WHEN handed.bytes IS NOT NULL THEN handed.bytes ELSE shared_bytes END AS lost
    FROM last LEFT JOIN handed ON first = least(ga, gb) AND second = greatest(ga, gb)
    LEFT JOIN described x ON x.group_id = ga LEFT JOIN described y ON y.group_id = gb
),
second AS (
    SELECT verdict, reason_code, reason, refused_by, direction, file, line, gb, count(*) AS pairs, max(lost) AS lost,
        arg_max(ga, coalesce(lost, 0)) AS ga, arg_max(a_all, coalesce(lost, 0)) AS a_all, any_value(b_all) AS b_all
    FROM costed GROUP BY verdict, reason_code, reason, refused_by, direction, file, line, gb
)
SELECT verdict, reason_code, reason, refused_by, direction, file, line, any_value(source_text) AS source_text,
    sum(pairs)::BIGINT AS pairs, sum(lost)::BIGINT AS bytes, arg_max(ga, coalesce(lost, 0)) AS a,
    arg_max(gb, coalesce(lost, 0)) AS b, coalesce(arg_max(a_all, coalesce(lost, 0)), []) AS a_ops,
    coalesce(arg_max(b_all, coalesce(lost, 0)), []) AS b_ops
FROM second LEFT JOIN text USING (file, line)
GROUP BY verdict, reason_code, reason, refused_by, direction, file, line
ORDER BY bytes DESC NULLS LAST, pairs DESC, reason_code, file, line
"""
