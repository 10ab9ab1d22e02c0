"""A model file with RANKS = n: n processes record it side by side, as the ranks of one group."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fusionscope.collector.commands import opened
from fusionscope.collector.environment import GROUP, RANK, RANKS


def record_ranks(ranks: int, command_line: Sequence[str], store: Path | None) -> int:
    """Run the command once per rank, all at the same time; returns the highest exit code.

    Each rank finds its number in $CASE_RANK. Where one writes to standard output, so do all, in no order.
    """
    group = {RANKS: str(ranks), GROUP: secrets.token_hex(6)}
    command = [sys.executable, "-m", "fusionscope.collector.cli", *command_line]
    running = [subprocess.Popen(command, env=os.environ | group | {RANK: str(rank)}) for rank in range(ranks)]
    code = max(process.wait() for process in running)
    opened(store)  # of ranks that end together one imports, the others leave theirs in the inbox
    return code
