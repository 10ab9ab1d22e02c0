"""The allocator's events of a profiled step → blocks of memory, each with what allocated it: line, operator, phase."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import RecordScope, _EventType

from fusionscope.collector.measure.lines import place
from fusionscope.collector.measure.profile import MARK, Profile

_BACKWARD = "autograd::engine::evaluate_function: "
_OPTIMIZER = ("torch/optim/", "step")  # folder and function of an optimizer's step
_RESULT = re.compile(r"^(\w+) = ")  # of a wrapper line


@dataclass(slots=True)
class Block:
    """A block that the step allocated, or one from before that it freed (`start_ns` None)."""

    bytes: int
    address: int
    start_ns: int | None
    origin: Origin
    end_ns: int | None = None
    first_event: int | None = None
    last_event: int | None = None

    @property
    def is_scratch(self) -> bool:
        """Freed before the operator ends that allocated it."""
        return self.end_ns is not None and self.end_ns <= self.origin.op_end_ns


@dataclass(frozen=True, slots=True)
class Origin:
    """What runs at an event."""

    phase: str = "forward"  # forward, backward, optimizer
    op: str | None = None  # operator that the model called; of a backward the name of its node
    op_end_ns: int = 0
    source: tuple[str, int] | None = None  # line of the user's code; of a backward that of the forward operator
    wrapper: tuple[str, int] | None = None  # line of an emitted wrapper

    @property
    def text(self) -> str | None:
        """The wrapper line, else the operator; None of a free by Python itself."""
        if self.wrapper is None:
            return self.op
        return linecache.getline(*self.wrapper).strip() or self.op

    @property
    def buffer(self) -> str | None:
        """The name that the wrapper line gives to what it makes."""
        match = _RESULT.match(self.text or "") if self.wrapper else None
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Event:
    """An allocation or a free, in order of time."""

    time_ns: int
    delta: int
    block: Block
    origin: Origin


@dataclass(frozen=True, slots=True)
class WrapperCall:
    """One run of an emitted wrapper."""

    file: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """All of one step, in order."""

    begin_ns: int
    events: list[Event] = field(default_factory=list)
    calls: list[WrapperCall] = field(default_factory=list)
    backward_ns: tuple[int, int] | None = None  # from the first of autograd's nodes to the last

    @property
    def blocks(self) -> list[Block]:
        """Each block once, in order of its first event."""
        return list({id(event.block): event.block for event in self.events}.values())

    def call_at(self, file: str, time_ns: int) -> WrapperCall | None:
        """The run of a wrapper at a moment."""
        inside = (call for call in self.calls if call.file == file and call.start_ns <= time_ns <= call.end_ns)
        return next(inside, None)


def timeline(profile: Profile, device: torch.device, wrappers: frozenset[str]) -> Timeline:
    """The events of the device within the marked step, from all threads: on CUDA autograd has one of its own."""
    begin, end = profile.steps[0].start_time_ns, profile.steps[0].end_time_ns
    walk = _Walk(wrappers)
    own = profile.steps[0].start_tid  # first: a backward looks up the lines of the forward
    roots = sorted(profile.tree, key=lambda event: (event.start_tid != own, event.start_time_ns))
    seen = [
        (event, origin)
        for root in roots
        for event, origin in walk.allocations(root)
        if begin <= event.start_time_ns <= end and event.extra_fields.device.type == device.type
    ]
    seen.sort(key=lambda pair: pair[0].start_time_ns)
    calls = sorted((c for c in walk.calls if begin <= c.start_ns <= end), key=lambda call: call.start_ns)
    return Timeline(begin, list(_paired(seen)), calls, walk.backward_ns)


def _paired(seen: list[tuple[Any, Origin]]) -> Iterator[Event]:
    """Each free with its allocation, by address."""
    held: dict[int, Block] = {}
    for number, (event, origin) in enumerate(seen):
        delta, address, at = event.extra_fields.alloc_size, event.extra_fields.ptr, event.start_time_ns
        if delta >= 0:
            block = held[address] = Block(delta, address, at, origin, first_event=number)
        else:
            block = held.pop(address) if address in held else Block(-delta, address, None, origin)
            block.end_ns, block.last_event = at, number
        yield Event(at, delta, block, origin)


class _Walk:
    """Goes down the event tree and knows at each event what runs."""

    def __init__(self, wrappers: frozenset[str]) -> None:
        self._wrappers = wrappers
        self._forward_of: dict[int, tuple[str, int]] = {}  # autograd's sequence number → line of the forward
        self.calls: list[WrapperCall] = []
        self.backward_ns: tuple[int, int] | None = None

    def allocations(self, root: Any) -> Iterator[tuple[Any, Origin]]:
        """Allocation events below `root` with their origin; parents come before children."""
        stack = [(root, Origin())]
        while stack:
            event, above = stack.pop()
            if event.tag == _EventType.Allocation:
                yield event, above
                continue
            here = self._entered(event, above)
            stack += [(child, here) for child in reversed(event.children)]

    def _entered(self, event: Any, above: Origin) -> Origin:
        if event.tag in (_EventType.PyCall, _EventType.PyCCall):
            return self._python(event, above)
        if event.name == MARK:
            return Origin()
        return self._operator(event, above) if event.tag == _EventType.TorchOp else above

    def _python(self, event: Any, above: Origin) -> Origin:
        caller = event.extra_fields.caller
        file = whole_path(caller.file_name)
        if file in self._wrappers:
            return replace(above, wrapper=(file, caller.line_number), op=None, op_end_ns=0)
        return self._called(event, above) if event.tag == _EventType.PyCall else above

    def _called(self, event: Any, above: Origin) -> Origin:
        called = event.extra_fields.callsite
        folder, function = _OPTIMIZER
        if called.function_name == function and folder in called.file_name:
            return replace(above, phase="optimizer")
        if called.function_name == "call" and (file := whole_path(called.file_name)) in self._wrappers:
            self.calls.append(WrapperCall(file, event.start_time_ns, event.end_time_ns))
        return above

    def _operator(self, event: Any, above: Origin) -> Origin:
        name, number = event.name, event.extra_fields.sequence_number
        if name.startswith(_BACKWARD):
            first, last = self.backward_ns or (event.start_time_ns, event.end_time_ns)
            self.backward_ns = min(first, event.start_time_ns), max(last, event.end_time_ns)
            source = self._forward_of.get(number, above.source)
            return Origin("backward", name.removeprefix(_BACKWARD), event.end_time_ns, source)
        if (source := place(name)) is not None:
            return replace(above, source=source)
        if event.extra_fields.scope == RecordScope.USER_SCOPE:
            return above  # a region that the user, Dynamo or Inductor marked, no operator
        if above.phase == "forward" and number >= 0 and above.source is not None:
            self._forward_of.setdefault(number, above.source)
        return above if above.op is not None else replace(above, op=name, op_end_ns=event.end_time_ns)


@cache
def whole_path(name: str) -> str:
    """The profiler cuts the folders of sys.path off a file's name (torch/csrc/autograd/profiler_python.cpp)."""
    found = (Path(folder, name) for folder in ["", *sys.path])
    return str(next((path for path in found if path.exists()), name))
