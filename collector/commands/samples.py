"""List the sample models that `fusionscope record NAME` takes, with what to look for in each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from fusionscope.collector.commands import DONE, answer, as_json
from fusionscope.sample_models import SAMPLES, look_for


def add_arguments(parser: ArgumentParser) -> None:
    """Options of `fusionscope samples`."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: Namespace) -> int:
    """Print one line per sample model."""
    samples = {name: look_for(name) for name in SAMPLES}
    width = max(map(len, samples))
    answer(as_json(samples) if options.json else "\n".join(f"{n:{width}}  {text}" for n, text in samples.items()))
    return DONE
