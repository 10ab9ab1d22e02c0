"""Why is it slow, why is the peak high? One rule a question; each concludes from recorded facts alone."""

from __future__ import annotations

from dataclasses import astuple

from duckdb import DuckDBPyConnection

from fusionscope.storage import schema
from fusionscope.storage.findings import compiling, graphs, kernels
from fusionscope.storage.findings._rule import Facts, Rule
from fusionscope.storage.records import Finding

RULES: tuple[Rule, ...] = (*compiling.RULES, *kernels.RULES, *graphs.RULES)


def conclude(con: DuckDBPyConnection, run_id: str) -> list[Finding]:
    """What every rule says of a run, in the order of `RULES`."""
    facts = Facts(con, run_id)
    return [rule.conclude(facts) for rule in RULES]


def write(con: DuckDBPyConnection, run_id: str) -> None:
    """Put what is concluded of a run beside its facts, in place of what another version concluded."""
    rows = [[run_id, *astuple(finding)] for finding in conclude(con, run_id)]
    with schema.transaction(con):
        con.execute("DELETE FROM findings WHERE run_id = ?", [run_id])
        con.executemany(f"INSERT INTO findings VALUES ({', '.join('?' * len(rows[0]))})", rows)
