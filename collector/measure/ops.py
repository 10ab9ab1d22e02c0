"""Where eager's time goes: every kernel under the module whose forward, or whose backward, asked for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from torch._C._profiler import _EventType

from fusionscope.collector.measure.kernels import STEPS, Launch, above, operators_with_kernel, per_step
from fusionscope.collector.measure.modules import MODULE
from fusionscope.collector.measure.profile import Profile, descend
from fusionscope.storage.conclusion_records import UNATTRIBUTED
from fusionscope.storage.records import OpCost

_BACKWARD = (
    "autograd::engine::evaluate_function"  # event around each node of the backward: torch/csrc/autograd/engine.cpp
)


def op_costs(profile: Profile, launches: list[Launch], device: str) -> Iterator[OpCost]:
    """Eager's kernels by module, operator and direction: medians over the profiled steps, as compiled kernels have.

    `device` is the type of the model's device.
    """
    forward, traced = _forward_modules(profile), operators_with_kernel(device.upper())
    rows: dict[tuple[str | None, str, str], list[Launch]] = defaultdict(list)
    for launch in launches:
        module_path, direction = _place(launch.asker, forward)
        op = _as_traced(launch.asker, traced) or launch.op or UNATTRIBUTED + launch.name
        rows[module_path, op, direction].append(launch)
    for (module_path, op, direction), runs in rows.items():
        yield OpCost(
            module_path=module_path,
            op=op,
            direction=direction,
            variant="eager",
            eager_us=median(per_step(runs).values()),
            eager_kernels=len(runs) / STEPS,
        )


def _as_traced(asker: Any, traced: set[str]) -> str | None:
    """The operator that AOTAutograd's graph holds for a kernel, so that eager's rows meet those of compiled code.

    That graph is taken below the operators that only call others and has no writes in place (aten::conv2d becomes
    aten::convolution, aten::add_ becomes aten::add): torch/_functorch/_aot_autograd/graph_capture.py.
    """
    *_, outermost = (None, *(event.name for event in above(asker) if event.name in traced))
    return outermost.rstrip("_") if outermost else None


def _forward_modules(profile: Profile) -> Mapping[int, str]:
    """Sequence number of a forward operator → the module that it ran in; its backward bears the same number."""
    return {
        number: module
        for event in descend(profile.steps)
        if (number := _sequence(event)) is not None and (module := _module(event)) is not None
    }


def _place(asker: Any, forward: Mapping[int, str]) -> tuple[str | None, str]:
    backward = next((event for event in above(asker) if event.name.startswith(_BACKWARD)), None)
    if backward is None:
        return _module(asker), "forward"
    number = _sequence(backward)
    return None if number is None else forward.get(number), "backward"


def _module(event: Any) -> str | None:
    """The innermost module around an event."""
    marks = (outer.name.removeprefix(MODULE) for outer in above(event) if outer.name.startswith(MODULE))
    return next(marks, None)


def _sequence(event: Any) -> int | None:
    number = event.extra_fields.sequence_number if event.tag == _EventType.TorchOp else -1
    return number if number >= 0 else None
