"""What is alive at a step of a plan, and the decision that keeps each buffer alive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries._rows import fetch
from fusionscope.storage.queries.memory import Lifetime, lifetime, lifetimes_at
from fusionscope.storage.queries.plan import Group, PlanBuffer, PlanFacts, facts_around

MOST = 600  # buffers of a live set


@dataclass(frozen=True, slots=True)
class Alive:
    """A buffer that is alive at a step. Steps are lines of the emitted wrapper."""

    life: Lifetime
    first_use: int | None  # the step of the first call that reads it
    last_use: int | None  # of the last, which may work in place and not name it
    users: tuple[str, ...]  # kernels that read it after the step, in order
    gives_to: tuple[str, ...]  # buffers that take its memory over, one after the other
    made_by: str | None  # fusion group of the scheduler node that writes it
    cause: str  # given, constant, returned, saved, read, fused_reader, fused_writer, pool
    group_id: str | None  # the fusion that keeps it alive longer, where one does
    why: str  # the same in words


@dataclass(frozen=True, slots=True)
class Saved:
    """A forward value that the partitioner saved for the backward, or had computed again."""

    node: str
    saved: bool
    recomputed: bool
    is_input: bool
    bytes: int | None
    reason: str | None
    file: str | None
    line: int | None
    source_text: str | None


@dataclass(frozen=True, slots=True)
class _Moved:
    before: tuple[str, ...]
    after: tuple[str, ...]


def live_set(con: DuckDBPyConnection, run_id: str, graph_id: str, step: int, most: int = MOST) -> list[Alive]:
    """What is alive after `step`, largest first; those of unknown size last. Of a huge plan the `most` largest."""
    alive = lifetimes_at(con, run_id, graph_id, step, most)
    told = _told(con, run_id, graph_id, alive, step)
    return [told.of(life) for life in sorted(alive, key=lambda life: -(life.bytes or 0))]


def story(con: DuckDBPyConnection, run_id: str, graph_id: str, buffer: str, step: int) -> Alive | None:
    """One buffer, at `step` if it is alive then, else where it begins; None where the plan has none of this name."""
    life = lifetime(con, run_id, graph_id, buffer)
    if life is None:
        return None
    return _told(con, run_id, graph_id, [life], step if life.alive_at(step) else life.allocated_at or 0).of(life)


def _told(con: DuckDBPyConnection, run_id: str, graph_id: str, alive: Sequence[Lifetime], step: int) -> _Told:
    moved = fetch(con, _Moved, _MOVED, [run_id, graph_id])
    reasons = _save_reasons(con, run_id, graph_id)
    facts = facts_around(con, run_id, graph_id, [life.buffer for life in alive])
    return _Told(facts, reasons, moved[0] if moved else None, step)


def saved_values(con: DuckDBPyConnection, run_id: str, graph_id: str) -> list[Saved]:
    """What the partitioner decided about the forward values of the compile of a graph, saved ones first."""
    return fetch(con, Saved, _SAVED, [run_id, _joint(graph_id)])


def _joint(graph_id: str) -> str:
    """The joint graph that a forward or a backward was cut out of."""
    return f"{graph_id.split('.')[0]}.joint"


def _save_reasons(con: DuckDBPyConnection, run_id: str, graph_id: str) -> dict[str, str]:
    return {
        value.node: value.reason or "cheaper to keep than to compute again: the minimum cut"
        for value in saved_values(con, run_id, graph_id)
        if value.saved
    }


class _Told:
    """Says of each buffer why it is alive at one step."""

    def __init__(self, facts: PlanFacts, reasons: Mapping[str, str], moved: _Moved | None, step: int) -> None:
        self._facts, self._reasons, self._moved, self._step = facts, reasons, moved, step

    def of(self, life: Lifetime) -> Alive:
        """The buffer with its cause."""
        steps = self._facts.steps_of(self._facts.readers.get(life.buffer, ()))
        cause, group, why = self._cause(life)
        return Alive(
            life=life,
            first_use=steps[0] if steps else None,
            last_use=max(filter(None, (*steps[-1:], life.last_use)), default=None),
            users=tuple(self._kernel(at) for at in steps if at >= self._step),
            gives_to=tuple(self._takers(life.buffer)),
            made_by=made.group_id if (made := self._facts.group_of.get(life.ir_node or "")) else None,
            cause=cause,
            group_id=group.group_id if group else None,
            why=why,
        )

    def _cause(self, life: Lifetime) -> tuple[str, Group | None, str]:
        if life.category == "constant":
            return "constant", None, self._of_constant(life)
        if life.at_entry:
            return self._of_input(life)
        if life.category == "saved":
            return "saved", None, f"saved for the backward: {self._reason(life)}"
        if life.category in ("output", "gradient"):
            return "returned", None, f"the call returns it{self._also_read(life)}"
        return self._of_intermediate(life)

    def _of_constant(self, life: Lifetime) -> str:
        held = "a constant of the compiled graph, beside the module's own parameters"
        return held if life.bytes is not None else f"{held}; its size is {life.reason}"

    def _of_input(self, life: Lifetime) -> tuple[str, Group | None, str]:
        if life.reason:
            return "given", None, life.reason
        if life.freed_at is None:
            return "given", None, "the caller holds it"
        end = f"freed at step {life.freed_at}, after {self._last_kernel(life)}"
        if life.category == "saved":
            return "saved", None, f"saved by the forward ({self._reason(life)}); {end}"
        return "given", None, f"handed over by the caller; {end}"

    def _of_intermediate(self, life: Lifetime) -> tuple[str, Group | None, str]:
        readers = [n for n in self._facts.readers.get(life.buffer, ()) if (self._facts.step_of(n) or -1) >= self._step]
        taker = self._facts.taken_over_by.get(life.buffer)
        if not readers:
            return self._of_unread(life, taker)
        for node in readers:
            if (waiting := self._waiting(node, life.buffer)) is not None:
                return "fused_reader", *waiting
        if (early := self._early(life)) is not None:
            return "fused_writer", *early
        last = max(readers, key=lambda node: self._facts.step_of(node) or -1)
        return "read", None, f"{self._reads(last)}{self._reordered(last)}"

    def _of_unread(self, life: Lifetime, taker: PlanBuffer | None) -> tuple[str, Group | None, str]:
        if taker is not None and taker.allocated_at is not None and taker.allocated_at > self._step:
            return (
                "pool",
                None,
                f"read by no one any more: its memory waits for {taker.buffer}, step {taker.allocated_at}",
            )
        if life.freed_at is None:
            return "read", None, "Python drops it when the call returns"
        call = self._facts.last_call_before(life.freed_at)
        return "read", None, f"freed at step {life.freed_at}, after {call.kernel if call else 'its last use'}"

    def _waiting(self, node: str, buffer: str) -> tuple[Group, str] | None:
        """The fusion that makes `node` read `buffer` later: other members wait for buffers that come after its own."""
        group, at = self._facts.group_of.get(node), self._facts.step_of(node)
        if group is None or len(group.members) < 2 or at is None:
            return None
        ready = self._ready(node)
        late = [(self._ready(other), other) for other in group.members if other != node]
        latest, member = max(late)
        if latest <= ready:
            return None
        missing = max(self._outside(member), key=self._made)
        return group, (
            f"{self._kernel(at)} (step {at}) reads it only when {missing} is there (step {self._made(missing)}): "
            f"{node} is fused with {_listed(other for other in group.members if other != node)}"
        )

    def _ready(self, node: str) -> int:
        """The step at which the last buffer exists that a node reads from outside of its group."""
        return max((self._made(buffer) for buffer in self._outside(node)), default=-1)

    def _outside(self, node: str) -> list[str]:
        inside = {name for other in self._facts.group_of[node].members for name in self._written(other)}
        return [name for name in self._facts.inputs_of.get(node, ()) if name not in inside]

    def _made(self, buffer: str) -> int:
        made = self._facts.buffers.get(buffer)
        step = self._facts.step_of(made.ir_node) if made and made.ir_node else None
        return -1 if step is None else step

    def _written(self, node: str) -> tuple[str, ...]:
        known = self._facts.nodes.get(node)
        return known.buffers if known else ()

    def _early(self, life: Lifetime) -> tuple[Group, str] | None:
        """The fusion that made the buffer long before its first use: another member's result was needed at once."""
        writer = self._facts.buffers[life.buffer].ir_node
        group = self._facts.group_of.get(writer or "")
        own = self._facts.steps_of(self._facts.readers.get(life.buffer, ()))
        if group is None or writer is None or len(group.members) < 2 or not own or own[0] < self._step:
            return None
        siblings = {
            steps[0]: name
            for other in group.members
            if other != writer
            for name in self._written(other)
            if (steps := [s for s in self._facts.steps_of(self._facts.readers.get(name, ())) if s > self._made(name)])
        }
        if not siblings or min(siblings) >= own[0]:
            return None
        needed = siblings[min(siblings)]
        return group, (
            f"made early: {writer} is fused with {_listed(n for n in group.members if n != writer)}, whose {needed} is "
            f"read at step {min(siblings)}; it waits for {self._kernel(own[0])}, step {own[0]}"
        )

    def _reads(self, node: str) -> str:
        at = self._facts.step_of(node)
        return f"{self._kernel(at)} still reads it, step {at}"

    def _reordered(self, node: str) -> str:
        """Whether the pass that reorders for peak memory moved the last reader back."""
        group = self._facts.group_of.get(node)
        if self._moved is None or group is None:
            return ""
        before, after = self._moved.before, self._moved.after
        name = group.group_id
        if name not in before or name not in after or after.index(name) <= before.index(name):
            return ""
        return f"; reordering for peak memory moved that call from place {before.index(name)} to {after.index(name)}"

    def _also_read(self, life: Lifetime) -> str:
        steps = self._facts.steps_of(self._facts.readers.get(life.buffer, ()))
        return f"; {self._kernel(steps[-1])} reads it at step {steps[-1]}" if steps and steps[-1] > self._step else ""

    def _reason(self, life: Lifetime) -> str:
        """The partitioner's reason; a backward's input has the value's own name, a forward's buffer that of its op."""
        found = (self._reasons.get(name) for name in (life.buffer, *life.ops[:1]))
        return next(filter(None, found), "the partitioner's choice")

    def _last_kernel(self, life: Lifetime) -> str:
        call = self._facts.last_call_before(life.freed_at)
        return call.kernel if call else "its last use"

    def _kernel(self, step: int | None) -> str:
        call = self._facts.call_at(step)
        return call.kernel if call else "a call"

    def _takers(self, buffer: str) -> list[str]:
        taken: list[str] = []
        while (taker := self._facts.taken_over_by.get(buffer)) is not None and taker.buffer not in taken:
            buffer = taker.buffer
            taken.append(buffer)
        return taken


def _listed(names: Iterable[str], most: int = 4) -> str:
    """`op1, op5 and 3 more`."""
    known = list(names)
    return (
        ", ".join(known) if len(known) <= most else f"{', '.join(known[: most - 1])} and {len(known) - most + 1} more"
    )


_SAVED = """
SELECT c.node, c.saved, c.recomputed, c.is_input, c.bytes, c.reason, n.file, n.line, n.source_text
FROM partition_choices c LEFT JOIN graph_nodes n
    ON n.run_id = c.run_id AND n.node = c.node AND n.graph_id = replace(c.graph_id, '.joint', '.aot_forward')
WHERE c.run_id = $1 AND c.graph_id = $2 ORDER BY c.saved DESC, c.bytes DESC NULLS LAST, c.node
"""

_MOVED = """
SELECT before, after FROM reorderings
WHERE run_id = $1 AND graph_id = $2 AND pass_name = 'reorder_for_peak_memory' AND subject IS NULL
"""
