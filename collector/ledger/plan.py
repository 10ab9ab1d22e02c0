"""The wrapper's lines, carried out → live bytes after each step and the life of every buffer.

Rules that matched the measured peak to the byte: an AllocateLine adds its buffer; a ReuseLine hands the memory on; a
FreeIfNotReusedLine takes it away; a library call that allocates adds its results, and `del` of its tuple takes away
what the wrapper never named; `del` of an input frees only what the caller gave up, that is saved values and gradients
in a backward, never parameters or arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fusionscope.collector.ledger.graph_facts import CALLS, GraphFacts
from fusionscope.collector.observations import GraphConstant, GraphInput, LineSeen
from fusionscope.storage.records import Buffer, MemoryPoint

_KEPT_BY_CALLER = ("primals_", "arg")  # as are all arguments of a subgraph


@dataclass(slots=True)
class Plan:
    """What carrying out one graph's wrapper gives."""

    points: list[MemoryPoint] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    call_steps: list[tuple[LineSeen, int]] = field(default_factory=list)  # kernel calls in order, with their steps

    def last_in_block(self, buffer: Buffer) -> Buffer:
        """The last buffer that lives in the memory of `buffer`: itself, or the last of those that took it over."""
        takers = {made.reuses: made for made in self.buffers.values() if made.reuses}
        while buffer.buffer in takers:
            buffer = takers.pop(buffer.buffer)
        return buffer

    def block_ends(self) -> dict[str, int | None]:
        """Buffer → the step at which the block that it lives in is freed; None where it never is."""
        ends: dict[str, int | None] = {}
        takers = {made.reuses: made.buffer for made in self.buffers.values() if made.reuses}
        for name, buffer in reversed(self.buffers.items()):  # a taker comes after the buffer that it takes over
            ends[name] = ends[takers[name]] if name in takers else buffer.freed_at
        return ends


def carry_out(facts: GraphFacts) -> Plan:
    """Replay the lines of a graph's wrapper, from the first allocation to the return."""
    return _Replay(facts).run()


class _Replay:
    def __init__(self, facts: GraphFacts) -> None:
        self._facts = facts
        self._plan = Plan()
        self._live = 0
        self._owners: dict[str, int] = {}  # buffer that owns memory → bytes
        self._base = sum(facts.bytes_of(given) or 0 for given in facts.inputs.values())
        self._held = {block: set(given) for block, given in facts.lying_in.items()}  # by the inputs that lie in it

    def run(self) -> Plan:
        for given in self._facts.inputs.values():
            self._plan.buffers[given.buffer] = self._input(given)
            self._owners[given.buffer] = self._facts.bytes_of(given) or 0
        for held in self._facts.constants:
            self._plan.buffers[held.buffer] = self._constant(held)
        for line in self._facts.lines:
            self._take(line)
        self._note_last_uses()
        return self._plan

    def _take(self, line: LineSeen) -> None:
        match line.kind:
            case "AllocateLine" if line.buffer:
                self._allocate(line.buffer, line.bytes, f"allocate {line.buffer}")
            case "ReuseLine" if line.buffer and line.reused_as:
                self._reuse(line.buffer, line.reused_as)
            case "FreeIfNotReusedLine" if line.buffer and not line.is_reused:
                for name in (line.buffer, *self._facts.unnamed_items(line.buffer)):
                    self._free(name)
            case "MultiOutputLine" if line.buffer and line.buffer not in self._owners:
                self._receive(line.buffer)
            case "FreeLine" if line.buffer and line.buffer in self._facts.inputs:
                self._give_up(line.buffer)
            case kind if kind in CALLS:
                self._call(line)

    def _step(self, label: str, buffer: str | None = None, delta: int = 0) -> int:
        self._live += delta
        step = len(self._plan.points)
        self._plan.points.append(
            MemoryPoint(
                graph_id=self._facts.graph_id,
                basis="plan",
                variant="compiled",
                step=step,
                live_bytes=self._live,
                base_bytes=self._base,
                buffer=buffer,
                delta_bytes=delta,
                label=label,
            )
        )
        return step

    def _allocate(self, name: str, size: int | None, label: str) -> None:
        self._owners[name] = size or 0
        self._plan.buffers[name] = self._buffer(name, size, self._step(_told(label, size), name, size or 0))

    def _receive(self, name: str) -> None:
        """A result of a subgraph (cond, while_loop), which allocated it; of other calls the call itself has it."""
        known = self._facts.buffers.get(name)
        if known is not None and known.bytes is not None:
            self._allocate(name, known.bytes, f"{name} comes out of {known.part_of}")

    def _reuse(self, old: str, new: str) -> None:
        """The memory goes on under a new name."""
        size = self._owners.pop(old, 0)
        self._owners[new] = size
        step = self._step(f"{new} takes the memory of {old}", new)
        kind = "in_place" if new in self._facts.in_place else "pool"
        self._end(old, step)
        made = self._buffer(new, self._plan.buffers[old].bytes if old in self._plan.buffers else size, step)
        self._plan.buffers[new] = replace(made, reuses=old, reuse_kind=kind)

    def _free(self, name: str) -> None:
        if name in self._owners:  # an alias has no memory of its own
            self._end(name, self._step(f"free {name}", name, -self._owners.pop(name)))

    def _give_up(self, name: str) -> None:
        """The last of the inputs that lie in a block takes it away."""
        block = self._facts.block_of(name)
        if self._facts.function != "call" or block.startswith(_KEPT_BY_CALLER):
            return
        self._held[block].discard(name)
        if not self._held[block]:
            owner, *views = self._facts.lying_in[block]
            self._free(owner)
            for view in views:
                self._end(view, len(self._plan.points) - 1)

    def _call(self, line: LineSeen) -> None:
        made = self._facts.allocated_by(line)
        size = sum(buffer.bytes or 0 for buffer in made)
        label = _told(f"call {line.kernel}", *(buffer.bytes for buffer in made))
        step = self._step(label, line.buffer if made else None, size)
        self._plan.call_steps.append((line, step))
        for buffer in made:
            self._owners[buffer.buffer] = buffer.bytes or 0
            result = self._buffer(buffer.buffer, buffer.bytes, step)
            self._plan.buffers[buffer.buffer] = replace(result, kernel_id=self._facts.kernel_id(line.kernel or ""))

    def _end(self, name: str, step: int) -> None:
        if name in self._plan.buffers:
            self._plan.buffers[name] = replace(self._plan.buffers[name], freed_at=step)

    def _buffer(self, name: str, size: int | None, step: int) -> Buffer:
        known = self._facts.buffers.get(name)
        return Buffer(
            graph_id=self._facts.graph_id,
            buffer=name,
            category=self._facts.category_of(name),
            bytes=size,
            shape=known.shape if known else None,
            dtype=known.dtype if known else None,
            allocated_at=step,
            ir_node=known.ir_node if known else None,
            kernel_id=self._facts.kernel_of(known.ir_node if known else None),
        )

    def _input(self, given: GraphInput) -> Buffer:
        owner = self._facts.owner_of(given.buffer)
        return Buffer(
            graph_id=self._facts.graph_id,
            buffer=given.buffer,
            category=self._facts.input_category(given),
            bytes=self._facts.bytes_of(given),
            shape=given.shape,
            dtype=given.dtype,
            reason=None if given.buffer == owner else f"a view of the memory of {owner}",
        )

    def _constant(self, held: GraphConstant) -> Buffer:
        return Buffer(
            graph_id=self._facts.graph_id,
            buffer=held.buffer,
            category="constant",
            bytes=held.bytes,
            shape=held.shape,
            dtype=held.dtype,
            reason="not recorded: opaque layout" if held.bytes is None else None,
        )

    def _note_last_uses(self) -> None:
        for line, step in self._plan.call_steps:
            for name in self._used_by(line):
                if name in self._plan.buffers:
                    self._plan.buffers[name] = replace(self._plan.buffers[name], last_use=step)

    def _used_by(self, line: LineSeen) -> Iterable[str]:
        for name in (*line.args, line.buffer or ""):
            yield name
            if name in self._facts.inputs:
                yield self._facts.owner_of(name)


def _told(label: str, *sizes: int | None) -> str:
    """A step's label, which says when it allocates what only the data can tell."""
    return f"{label} (a size that depends on data is counted as 0)" if None in sizes else label
