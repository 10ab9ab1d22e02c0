"""Other recordings of the same program in the same circumstances: how far they lie apart is what noise is."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

MOST = 20  # the newest


def repeats(con: DuckDBPyConnection, run_id: str, *, besides: str) -> list[str]:
    """Complete runs of the same name, commit, circumstances and kernels as `run_id`, without it and `besides`.

    Of a commit with changes the kernels alone tell whether the code is the same.
    """
    likely = [found for (found,) in con.execute(_LIKELY, [run_id, besides]).fetchall()]
    kernels = dict(con.execute(_KERNELS, [[run_id, *likely]]).fetchall()) if likely else {}
    return [found for found in likely if kernels.get(found) == kernels.get(run_id)]


_SAME = (
    *("name", "project", "source_path", "git_commit", "git_dirty", "options", "mode", "dynamic", "fp32_matmul"),
    *("torch_version", "triton_version", "host", "device_kind", "device_name", "threads", "world_size", "rank"),
)
_LIKELY = f"""
SELECT r.run_id FROM runs r, (FROM runs WHERE run_id = $1) a
WHERE r.run_id NOT IN ($1, $2) AND r.status = 'complete' AND r.deleted_at IS NULL
    AND {" AND ".join(f"r.{column} IS NOT DISTINCT FROM a.{column}" for column in _SAME)}
ORDER BY r.created_at DESC LIMIT {MOST}
"""
_KERNELS = """
SELECT run_id, list_sort(list(name || ' ' || coalesce(source, '')))
FROM kernels WHERE run_id IN (SELECT unnest($1)) GROUP BY run_id
"""
