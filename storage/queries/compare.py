"""Eager against compiled: what was measured of each variant."""

from __future__ import annotations

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.moved import moved
from fusionscope.storage.records import KernelTiming, Measurement, TimelineSpan


def measurements(con: DuckDBPyConnection, run_id: str) -> list[Measurement]:
    """Everything measured of the run, and the bytes that compiled code moves; eager before compiled within a metric."""
    found = [*records_of(con, Measurement, run_id), *moved(con, run_id)]
    return sorted(found, key=lambda m: (m.metric, m.variant != "eager", m.variant))


def timings(con: DuckDBPyConnection, run_id: str, variant: str) -> list[KernelTiming]:
    """Kernels and operators of one variant, most time per call of the model first."""
    return sorted((t for t in records_of(con, KernelTiming, run_id) if t.variant == variant), key=lambda t: -t.total_us)


def timeline(con: DuckDBPyConnection, run_id: str) -> list[TimelineSpan]:
    """Spans of one profiled call of each variant, in order of their beginning."""
    return sorted(records_of(con, TimelineSpan, run_id), key=lambda s: (s.variant != "eager", s.variant, s.start_us))
