"""What the plan would have been had a group not been fused: its schedule carried out again with the group split.

A unit of the schedule allocates what it writes, runs, and frees what nothing after it reads. Assumed of a split: each
member becomes a kernel of its own, nothing else fuses otherwise, and the order is the one that the scheduler hands on,
that is by first appearance with the producers of a node before it (Scheduler.topological_sort_schedule in
torch/_inductor/scheduler.py); Inductor takes another order only where its own estimate of that one is lower. Buffers
that the fusion kept in registers are allocated; a pointwise member that is the last reader of a buffer of its size
works in place. The same rules must give the recorded plan when nothing is split, else nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from fusionscope.storage.queries.plan import Group, PlanBuffer, PlanFacts, calls_of, plan_facts

MOST_CALLS = 4000
MOST_TRIED = 40  # fusions of a graph that are replayed without: those that touch most at the peak

Unit = tuple[str, ...]  # scheduler nodes that one call runs


@dataclass(frozen=True, slots=True)
class Without:
    """The plan's peak with and without one fusion group."""

    group_id: str
    members: tuple[str, ...]
    kernel: str | None
    peak_bytes: int  # of the plan as it is
    without_bytes: int  # had each member been a kernel of its own

    @property
    def saved_bytes(self) -> int:
        """By how much the peak would be lower; negative: higher."""
        return self.peak_bytes - self.without_bytes


def fusions_at(con: DuckDBPyConnection, run_id: str, graph_id: str, step: int) -> list[Without]:
    """The fusions without which the plan's peak would be lower; `step` is that of the peak.

    Empty for a graph of more than MOST_CALLS calls, which takes too long to carry out again and again.
    """
    if calls_of(con, run_id, graph_id) > MOST_CALLS:
        return []
    facts = plan_facts(con, run_id, graph_id)
    alive = [b.buffer for b in facts.buffers.values() if b.allocated_at is not None and _alive(b, step)]
    return fusions_that_raise_the_peak(facts, alive)


def _alive(buffer: PlanBuffer, step: int) -> bool:
    return (buffer.allocated_at or 0) <= step and (buffer.freed_at is None or buffer.freed_at > step)


def reproduces(facts: PlanFacts) -> bool:
    """Whether the rules of the replay give the peak of the recorded plan."""
    return bool(facts.calls) and _Replay(facts, _as_recorded(facts)).peak() == facts.peak_bytes


def peak_without(facts: PlanFacts, group: Group) -> int:
    """Peak of the plan in bytes had the members of `group` not been fused."""
    parts = [part for other in facts.groups for part in _parts(other, split=other is group)]
    ordered = _in_order(facts, sorted(parts, key=lambda unit: min(_position(facts, node) for node in unit)))
    return _Replay(facts, _packed(facts, ordered), frozenset(group.members)).peak()


def fusions_that_raise_the_peak(facts: PlanFacts, alive: Sequence[str]) -> list[Without]:
    """The fusions without which the peak would be lower, most bytes first. `alive` are the buffers of the peak.

    Empty where the replay does not reproduce the recorded plan.
    """
    if facts.peak_bytes is None or not reproduces(facts):
        return []
    tried = [
        Without(
            group_id=group.group_id,
            members=group.members,
            kernel=call.kernel if (call := facts.call_of.get(group.group_id)) else None,
            peak_bytes=facts.peak_bytes,
            without_bytes=peak_without(facts, group),
        )
        for group in _touching(facts, alive)[:MOST_TRIED]
    ]
    return sorted((found for found in tried if found.saved_bytes > 0), key=lambda found: -found.saved_bytes)


def _touching(facts: PlanFacts, alive: Sequence[str]) -> list[Group]:
    """Groups of several nodes that read or write what is alive, those with most bytes first."""
    touched: dict[str, int] = {}
    for name in alive:
        made = facts.buffers[name]
        nodes = {*facts.readers.get(name, ()), *([made.ir_node] if made.ir_node else [])}
        for group in {facts.group_of[node] for node in nodes if node in facts.group_of}:
            if len(group.members) > 1:
                touched[group.group_id] = touched.get(group.group_id, 0) + (made.bytes or 0)
    by_id = {group.group_id: group for group in facts.groups}
    return [by_id[key] for key in sorted(touched, key=lambda key: (-touched[key], key))]


def _parts(group: Group, *, split: bool) -> list[Unit]:
    return [(member,) for member in group.members] if split else [group.members]


def _position(facts: PlanFacts, node: str) -> int:
    return facts.nodes[node].position if node in facts.nodes else 0


def _in_order(facts: PlanFacts, units: Sequence[Unit]) -> list[Unit]:
    """Depth first, producers before their readers, by name of the buffer: as topological_sort_schedule does."""
    writer = {buffer: unit for unit in units for node in unit for buffer in _written(facts, node)}
    ordered: dict[Unit, None] = {}
    begun: set[Unit] = set()
    stack = [(unit, iter(_producers(facts, unit, writer))) for unit in reversed(units)]
    while stack:
        unit, producers = stack[-1]
        begun.add(unit)
        following = next((other for other in producers if other not in begun), None)
        if following is None:
            stack.pop()
            ordered[unit] = None
        else:
            stack.append((following, iter(_producers(facts, following, writer))))
    return list(ordered)


def _producers(facts: PlanFacts, unit: Unit, writer: dict[str, Unit]) -> Iterator[Unit]:
    needed = {buffer for node in unit for buffer in facts.inputs_of.get(node, ())}
    return (writer[buffer] for buffer in sorted(needed) if buffer in writer and writer[buffer] != unit)


def _written(facts: PlanFacts, node: str) -> tuple[str, ...]:
    return facts.nodes[node].buffers if node in facts.nodes else ()


def _as_recorded(facts: PlanFacts) -> list[Unit]:
    """The groups in final order, those of one call together."""
    return _packed(facts, [group.members for group in facts.groups])


def _packed(facts: PlanFacts, units: Sequence[Unit]) -> list[Unit]:
    """The C++ backend writes generated loops that follow one another into one kernel (KernelGroup in cpp.py)."""
    if not any(call.backend == "cpp" for call in facts.calls):
        return list(units)
    packed: list[Unit] = []
    open_kernel = False
    for unit in units:
        kinds = {facts.nodes[node].kind for node in unit if node in facts.nodes}
        generated = bool(kinds) and not kinds & {"extern", "template"}
        if open_kernel and generated:
            packed[-1] += unit
        else:
            packed.append(unit)
        open_kernel = generated
    return packed


class _Replay:
    """The lifetimes of all buffers, counted in units, for one order of the schedule."""

    def __init__(self, facts: PlanFacts, units: Sequence[Unit], split: frozenset[str] = frozenset()) -> None:
        self._facts, self._units, self._split = facts, units, split
        self._at = {node: index for index, unit in enumerate(units) for node in unit}
        self._ends: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._starts: dict[str, int] = {}

    def peak(self) -> int:
        """Highest sum of live bytes above the entry of the call."""
        self._live()
        self._hand_on()
        deltas = [0] * (len(self._units) + 2)
        for name, size in self._sizes.items():
            deltas[self._starts[name]] += size
            deltas[max(self._ends[name], self._starts[name] - 1) + 1] -= size
        for index, size in self._given_up():
            deltas[index + 1] -= size
        live = highest = 0
        for delta in deltas[: len(self._units)]:
            live += delta
            highest = max(highest, live)
        return highest

    def _live(self) -> None:
        """Start and end of every buffer: of those in the plan, and of those that only a split would allocate."""
        for buffer in self._facts.buffers.values():
            if (writer := self._writer_of(buffer)) is not None:
                self._note(buffer.buffer, writer, buffer.bytes or 0)
                anchor = self._anchor(buffer.buffer)
                self._ends[buffer.buffer] = max(self._ends[buffer.buffer], anchor)
        for node in self._split:
            for name in _written(self._facts, node):
                if name not in self._facts.buffers and self._facts.readers.get(name):
                    self._note(name, node, self._size_of(name, node))

    def _writer_of(self, buffer: PlanBuffer) -> str | None:
        """The node that writes a buffer; of a tuple's item that nothing reads, a node of the call that returns it."""
        if buffer.allocated_at is None or buffer.ir_node in self._at:
            return buffer.ir_node
        call = next((call for call in self._facts.calls if call.step >= buffer.allocated_at), None)
        nodes = (node for key in (call.group_ids if call else ()) for node in self._members(key))
        return next((node for node in nodes if node in self._at), None)

    def _note(self, name: str, writer: str, size: int) -> None:
        start = self._at[writer]
        uses = [self._at[node] for node in self._facts.readers.get(name, ()) if node in self._at]
        self._starts[name], self._ends[name], self._sizes[name] = start, max([start, *uses]), size

    def _anchor(self, name: str) -> int:
        """A recorded end that no reader explains (an alias was read, the caller gets it) stays where it was."""
        buffer = self._facts.buffers[name]
        if name in self._facts.taken_over_by:
            return -1
        if buffer.freed_at is None:
            return -1 if self._dies_at_the_end(buffer) else len(self._units) - 1
        last = self._facts.last_call_before(buffer.freed_at)
        nodes = [n for key in (last.group_ids if last else ()) for n in self._members(key)]
        explained = set(nodes) & {*self._facts.readers.get(name, ()), buffer.ir_node}
        return -1 if explained else max((self._at[node] for node in nodes if node in self._at), default=-1)

    def _dies_at_the_end(self, buffer: PlanBuffer) -> bool:
        """Read by the last call and returned to nobody: the wrapper drops frees that stand after its last call."""
        steps = self._facts.steps_of(self._facts.readers.get(buffer.buffer, ()))
        return buffer.category == "intermediate" and bool(steps) and steps[-1] == self._facts.calls[-1].step

    def _members(self, group_id: str) -> tuple[str, ...]:
        return self._facts.members_of.get(group_id, ())

    def _size_of(self, name: str, node: str) -> int:
        """Of a buffer that was never allocated: what its node writes, else the most that a reader takes of it."""
        known = self._facts.nodes[node]
        if len(known.buffers) == 1 and known.bytes_written is not None:
            return known.bytes_written
        return max((read.bytes or 0 for read in self._facts.reads if read.buffer == name), default=0)

    def _hand_on(self) -> None:
        """Memory that goes on under a new name is not there twice; what waits in the pool for its taker stays alive."""
        for name in list(self._sizes):
            old = self._taken(name)
            if old is None or old not in self._ends:
                continue
            start = self._starts[name]
            if self._ends[old] <= start and (self._in_place(name, old) or self._ends[old] < start):
                self._ends[old] = start - 1

    def _in_place(self, name: str, old: str) -> bool:
        recorded = self._facts.buffers.get(name)
        return recorded is None or recorded.reuses != old or recorded.reuse_kind == "in_place"

    def _taken(self, name: str) -> str | None:
        """The buffer whose memory `name` takes over: as recorded, else what a split pointwise node reads last."""
        recorded = self._facts.buffers.get(name)
        if recorded is not None and recorded.reuses:
            return recorded.reuses
        writer = recorded.ir_node if recorded else self._writer(name)
        if writer is None or writer not in self._split or self._facts.nodes[writer].kind != "pointwise":
            return None
        start = self._starts[name]
        return next(
            (
                old
                for old in sorted(self._facts.inputs_of.get(writer, ()))
                if self._sizes.get(old) == self._sizes[name]
                and self._ends[old] == start
                and self._starts[old] < start
                and self._facts.buffers.get(old, None) is not None
                and old not in self._facts.taken_over_by
            ),
            None,
        )

    def _writer(self, name: str) -> str | None:
        return next((node for node in self._split if name in _written(self._facts, node)), None)

    def _given_up(self) -> Iterator[tuple[int, int]]:
        """Inputs that the call frees, after the unit that used them last."""
        for buffer in self._facts.buffers.values():
            if buffer.allocated_at is not None or buffer.freed_at is None:
                continue
            taker = self._facts.taken_over_by.get(buffer.buffer)
            end = self._starts[taker.buffer] - 1 if taker else max(0, self._anchor(buffer.buffer))
            yield end, buffer.bytes or 0
