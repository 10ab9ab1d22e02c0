"""Where the time went: the rows of eager and compiled cover what was timed, and add up to it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from llama import Llama
from target_programs import Block

from fusionscope.collector import record
from fusionscope.collector.measure import latency
from fusionscope.sample_models import SAMPLES, WANT_GPU
from fusionscope.storage.library import Library
from fusionscope.storage.queries import compare, costs


def llama() -> tuple[Any, tuple[Any, ...], bool]:
    """The small Llama in a training step, called by a function."""
    model = Llama()
    return lambda tokens: model(tokens).log_softmax(-1), (torch.randint(256, (2, 32)),), True


def block() -> tuple[Any, tuple[Any, ...], bool]:
    """A transformer block of GPT-2's width in a training step."""
    return Block(), (torch.randn(2, 32, 768),), True


def sample(name: str) -> tuple[Any, tuple[Any, ...], bool]:
    """A sample model, its inputs and whether it trains."""
    module = import_module(SAMPLES[name])
    model, inputs, _ = module.build()
    return model, inputs, getattr(module, "BACKWARD", False)


OTHERS = {"llama": llama, "block": block}
TRACED = {"mlp_parameters", "conv_norm_relu"}  # measured through TorchScript too


@pytest.mark.parametrize("name", [*OTHERS, *sorted(SAMPLES.keys() - WANT_GPU)])
def test_the_rows_cover_what_was_timed_and_add_up_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(latency, "ROUNDS", 2)
    monkeypatch.setattr(latency, "SECONDS", 0.0)
    torch._dynamo.reset()
    model, inputs, trains = OTHERS[name]() if name in OTHERS else sample(name)
    variants = ("torchscript",) if name in TRACED else ()
    with record(name, store=tmp_path, strict=True) as recording:
        compiled = torch.compile(model)
        comparison = recording.compare(model, inputs, compiled=compiled, backward=trains, variants=variants)
    library = Library(tmp_path)
    rows = library.ask(costs.rows, recording.run_id, "module and operator")
    covered = {part.variant: part for part in library.ask(costs.coverage, recording.run_id)}
    assert min(part.covered for part in covered.values()) >= 0.98
    assert covered["eager"].total_us == pytest.approx(sum(row.eager_us for row in rows))
    assert covered["compiled"].total_us == pytest.approx(sum(row.compiled_us for row in rows))
    timed = library.ask(compare.timings, recording.run_id, "compiled")
    assert covered["compiled"].total_us == pytest.approx(sum(timing.total_us for timing in timed))
    measured = {(m.variant, m.metric): m.median for m in library.ask(compare.measurements, recording.run_id)}
    assert {(v, m) for v in covered for m in ("bytes_moved", "latency_us", "profiled_us")} <= measured.keys()
    if name == "mlp_parameters":  # one value less passes through memory; of softmax each row's largest and sum do
        spared = 2 * 1024 * 512 * 4 - 2 * 1024 * 4
        assert measured["eager", "bytes_moved"] - measured["compiled", "bytes_moved"] == spared
    assert set(variants) <= comparison.latency_us.keys()
    if trains:
        both = {row.direction for row in rows if row.eager_us and row.compiled_us}
        assert both == {"forward", "backward"}
