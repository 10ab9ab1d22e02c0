"""The variants of a model: each made, run once and compared with eager before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from fusionscope.collector.measure import torchscript
from fusionscope.collector.measure.modules import called
from fusionscope.collector.measure.numerics import NotComparable, numeric_records, random_state, results_of
from fusionscope.collector.measure.step import Model, Step, step_of
from fusionscope.collector.measure.wrappers import wrappers
from fusionscope.collector.variants import TORCHSCRIPT, VARIANTS
from fusionscope.storage.records import Measurement

Make = Callable[[], Model]
RANDOM = "its results are not compared with eager's: the model draws random numbers, and compiled code draws others"


@dataclass(frozen=True)
class Variant:
    """A way to run the model, ready to be timed."""

    name: str
    step: Step
    profiled: Step  # the same; of eager with the model's own call as an event of the profiler
    wrappers: Sequence[ModuleType]  # of Inductor, those among which the ones that it runs are


class Variants:
    """Makes variants one after the other, eager first, and holds eager's results for as long as that takes."""

    def __init__(self, model: Model, inputs: Sequence[Any], leaves: Sequence[Tensor] | None, device: torch.device):
        self._inputs, self._leaves = inputs, leaves
        steps = step_of(model, inputs, leaves), step_of(called(model), inputs, leaves)
        self.eager = Variant("eager", *steps, ())
        torch.manual_seed(0)
        seeded = random_state(device)
        self._expected = results_of(model, inputs, leaves)
        self._random = not torch.equal(seeded, random_state(device))
        self.records: list[Measurement] = []
        self.reasons: list[str] = []

    def add(self, name: str, model: Model) -> Variant:
        """Run a variant once; what compiled code it runs is loaded by then, and its errors are among the records."""
        before = wrappers()
        results = results_of(model, self._inputs, self._leaves)
        loaded = [wrapper for wrapper in wrappers() if wrapper not in before]
        try:
            if self._random:
                raise NotComparable(RANDOM)
            self.records += numeric_records(name, results, self._expected)
        except NotComparable as reason:
            self.reasons.append(f"{name}: {reason}")
        step = step_of(model, self._inputs, self._leaves)
        return Variant(name, step, step, loaded or before)

    def try_all(self, makers: Mapping[str, Make], progress: Callable[[str], None]) -> Iterator[Variant]:
        """Those that can be made and run; torch's compilers and its tracer refuse with a RuntimeError."""
        limit = torch._dynamo.config.recompile_limit + len(makers)  # each variant is one more entry of the same code
        for name, make in makers.items():
            progress(f"{name}, first call")
            try:
                with torch._dynamo.config.patch(recompile_limit=limit):
                    yield self.add(name, make())
            except RuntimeError as error:
                self.reasons.append(f"{name}: not measured: {str(error).strip().splitlines()[0]}")


def maker(name: str, model: Model, inputs: Sequence[Any]) -> Make:
    """What makes the variant of that name, one of VARIANTS."""
    if name == TORCHSCRIPT:
        return lambda: _traced(model, inputs)
    return lambda: torch.compile(model, **VARIANTS[name])


def _traced(model: Model, inputs: Sequence[Any]) -> Model:
    traced = torchscript.trace(model, inputs)
    if isinstance(traced, str):
        raise RuntimeError(traced)
    return traced.module
