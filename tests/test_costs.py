"""Where the time went: the rows of eager and compiled cover what was timed, and add up to it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from llama import Llama

from fusionscope.collector import record
from fusionscope.collector.measure import latency
from fusionscope.sample_models import SAMPLES
from fusionscope.storage.library import Library
from fusionscope.storage.queries import compare, costs


def llama() -> tuple[Any, tuple[Any, ...], bool]:
    """The small Llama in a training step, called by a function."""
    model = Llama()
    return lambda tokens: model(tokens).log_softmax(-1), (torch.randint(256, (2, 32)),), True


def sample(name: str) -> tuple[Any, tuple[Any, ...], bool]:
    """A sample model, its inputs and whether it trains."""
    module = import_module(SAMPLES[name])
    model, inputs, _ = module.build()
    return model, inputs, getattr(module, "BACKWARD", False)


@pytest.mark.parametrize("name", ["llama", "mlp_inline", "transformer_step", "conv_norm_relu"])
def test_the_rows_cover_what_was_timed_and_add_up_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(latency, "ROUNDS", 2)
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    torch._dynamo.reset()
    model, inputs, trains = llama() if name == "llama" else sample(name)
    with record(name, store=tmp_path, strict=True) as recording:
        compiled = torch.compile(model)
        recording.compare(model, inputs, compiled=compiled, backward=trains)
    library = Library(tmp_path)
    rows = library.ask(costs.rows, recording.run_id, "module and operator")
    covered = {part.variant: part for part in library.ask(costs.coverage, recording.run_id)}
    assert min(part.covered for part in covered.values()) >= 0.98
    assert covered["eager"].total_us == pytest.approx(sum(row.eager_us for row in rows))
    assert covered["compiled"].total_us == pytest.approx(sum(row.compiled_us for row in rows))
    timed = library.ask(compare.timings, recording.run_id, "compiled")
    assert covered["compiled"].total_us == pytest.approx(sum(timing.total_us for timing in timed))
    if trains:
        both = {row.direction for row in rows if row.eager_us and row.compiled_us}
        assert both == {"forward", "backward"}
