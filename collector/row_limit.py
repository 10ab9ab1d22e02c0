"""A limit for the rows of each table, so that a huge model still gives a run that opens; what is left out is told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from fusionscope.collector.observations import RowsLeftOut
from fusionscope.storage.records import TABLE_OF, HookStatus

MOST_ROWS = 500_000  # of a table and run; a GPT of 32 layers has 72,000 in all tables together


class RowLimit:
    """Counts the rows of a run by table."""

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._most = most
        self._kept: Counter[str] = Counter()
        self._left_out: dict[str, Counter[str]] = defaultdict(Counter)  # table → limit in words → rows

    def within(self, records: Iterable[Any]) -> Iterator[Any]:
        """The records that their tables have room for, in order; the others are counted."""
        for record in records:
            if isinstance(record, RowsLeftOut):
                self._left_out[record.table][record.limit] += record.rows
                continue
            table = TABLE_OF[type(record)]
            if self._kept[table] < self._most:
                self._kept[table] += 1
                yield record
            else:
                self._left_out[table][f"a run keeps {self._most:,} rows of a table"] += 1

    def statuses(self) -> list[HookStatus]:
        """What the coverage statement says of each table that lost rows."""
        return [
            HookStatus(
                hook=f"rows of {table}",
                state="partial",
                reason="; ".join(f"{limit}: {rows:,} more were left out" for limit, rows in left_out.items()),
                recorded=self._kept[table],
                lost=left_out.total(),
            )
            for table, left_out in self._left_out.items()
        ]
