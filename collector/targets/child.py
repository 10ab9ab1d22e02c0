"""The process in which a target is recorded: `python -m fusionscope.collector.targets.child H200 record gpt …`."""

from __future__ import annotations

import sys

from fusionscope.collector import cli
from fusionscope.collector.commands import BAD_INPUT, say
from fusionscope.collector.targets.devices import DEVICES
from fusionscope.collector.targets.presence import stand_in_for
from fusionscope.collector.targets.stand_in import StandInFailed


def main(name: str, command_line: list[str]) -> int:
    """Run a command of `fusionscope` with the GPU `name` as the default device; returns the exit code."""
    import torch

    try:
        mode = stand_in_for(DEVICES[name])
    except StandInFailed as error:
        say(str(error))
        return BAD_INPUT
    with mode, torch.device("cuda"):
        return cli.main(command_line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
