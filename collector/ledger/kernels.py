"""Kernel definitions and wrapper calls → kernels, their calls in order, and which edges reached memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fusionscope.collector.ledger.graph_facts import GraphFacts
from fusionscope.collector.ledger.plan import Plan
from fusionscope.collector.observations import LineSeen
from fusionscope.storage.records import IrEdge, Kernel, KernelCall


def kernels_and_calls(facts: GraphFacts, plan: Plan, output_code: str | None) -> tuple[list[Kernel], list[KernelCall]]:
    """One kernel per name and graph, one call per wrapper line that runs one."""
    nodes_left = facts.nodes_by_call()
    lines = _CallLines(output_code or "", facts.function)
    kernels: dict[str, Kernel] = {}
    calls: list[KernelCall] = []
    for line, step in plan.call_steps:
        name = line.kernel or "unnamed"
        nodes = nodes_left[name].popleft() if nodes_left.get(name) else facts.writer_of(line.buffer)
        traffic = _traffic(facts, plan, line, nodes)
        if name not in kernels:
            kernels[name] = _kernel(facts, line, name, nodes, traffic)
        groups = dict.fromkeys(facts.group_of[node] for node in nodes if node in facts.group_of)
        calls.append(
            KernelCall(
                graph_id=facts.graph_id,
                position=len(calls),
                kernel_id=facts.kernel_id(name),
                group_ids=tuple(groups),
                step=step,
                line=lines.next(name),
                bytes_read=traffic.read,
                bytes_written=traffic.written,
                moved=traffic.moved,
                flops=traffic.flops,
            )
        )
    return list(kernels.values()), calls


class _CallLines:
    """Finds each call in the wrapper's text; calls stand there in the order of the plan."""

    def __init__(self, output_code: str, function: str) -> None:
        self._lines = output_code.splitlines()
        self._at = next((i for i, text in enumerate(self._lines) if text.lstrip().startswith(f"def {function}(")), 0)

    def next(self, kernel: str) -> int | None:
        """Line number, from 1, of the next call of a kernel; None where the text shows none."""
        for i in range(self._at, len(self._lines)):
            if f"{kernel}(" in self._lines[i] or f"{kernel}.run(" in self._lines[i]:
                self._at = i + 1
                return i + 1
        return None


def edges_with_memory(facts: GraphFacts, plan: Plan) -> list[IrEdge]:
    """Mark the edges whose buffer the wrapper allocated; the others stay in registers. No plan: not known."""
    if not facts.lines:
        return facts.edges
    return [replace(edge, materialised=edge.buffer in plan.buffers) for edge in facts.edges]


@dataclass(frozen=True)
class _Traffic:
    """Bytes and operations of one call."""

    read: int | None
    written: int | None
    moved: int | None
    flops: int | None


def _traffic(facts: GraphFacts, plan: Plan, line: LineSeen, nodes: tuple[str, ...]) -> _Traffic:
    known = [node for node in nodes if node in facts.nodes]
    written = {buffer for node in known for buffer in facts.nodes[node].buffers}
    written |= {line.buffer} if line.buffer else set()
    written |= {buffer.buffer for buffer in facts.allocated_by(line)}
    read = (set(line.args) | _taken_over(plan, written)) - written
    accesses = [facts.accesses[node] for node in known if node in facts.accesses]
    flops = [count for node in known if (count := facts.nodes[node].flops)]
    whole_read, whole_written = _sizes(plan, read), _sizes(plan, written)
    touched = {
        **_parts(whole_read, [a.read for a in accesses]),
        **_parts(whole_written, [a.written for a in accesses]),
    }
    return _Traffic(
        read=_sum(whole_read) if read or not written else 0,
        written=_sum(whole_written),
        moved=_sum(touched),
        flops=sum(flops) if flops else None,
    )


def _sizes(plan: Plan, names: Iterable[str]) -> dict[str, int]:
    known = ((name, plan.buffers[name].bytes) for name in names if name in plan.buffers)
    return {name: size for name, size in known if size is not None}


def _parts(whole: dict[str, int], accesses: list[dict[str, int | None]]) -> dict[str, int]:
    """Bytes of each buffer that the scheduler node which touches most of it does; all of it where none tells."""
    parts = {name: [size for of_node in accesses if (size := of_node.get(name)) is not None] for name in whole}
    return {name: min(size, max(parts[name], default=size)) for name, size in whole.items()}


def _sum(sizes: dict[str, int]) -> int | None:
    return sum(sizes.values()) if sizes else None


def _kernel(facts: GraphFacts, line: LineSeen, name: str, nodes: tuple[str, ...], first: _Traffic) -> Kernel:
    source = facts.sources.get(name)
    return Kernel(
        kernel_id=facts.kernel_id(name),
        graph_id=facts.graph_id,
        name=name,
        backend=_backend(facts, line, nodes),
        source=_body(source.source) if source else None,
        bytes_read=first.read,
        bytes_written=first.written,
        flops=first.flops,
    )


def _body(definition: str) -> str:
    """The kernel's own text: the wrapper hands it to async_compile as a string between triple quotes."""
    _, _, rest = definition.partition("'''")
    body, _, _ = rest.rpartition("'''")
    return body.strip("\n") or definition


def _backend(facts: GraphFacts, line: LineSeen, nodes: tuple[str, ...]) -> str:
    if line.kind != "KernelCallLine":
        return "extern"
    if any(facts.nodes[node].kind == "template" for node in nodes if node in facts.nodes):
        return "template"
    source = facts.sources.get(line.kernel or "")
    if source is None:
        return "user"  # a Triton kernel that the model brought along
    return "triton" if source.gpu else "cpp"


def _taken_over(plan: Plan, written: Iterable[str]) -> set[str]:
    """Buffers that a kernel updates in place: it reads them although its arguments show only the new name."""
    made = (plan.buffers[name] for name in written if name in plan.buffers)
    return {buffer.reuses for buffer in made if buffer.reuses and buffer.reuse_kind == "in_place"}
