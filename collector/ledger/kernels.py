"""Kernel definitions and wrapper calls → kernels, their calls in order, and which edges reached memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

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
        if name not in kernels:
            kernels[name] = _kernel(facts, plan, line, name, nodes)
        groups = dict.fromkeys(facts.group_of[node] for node in nodes if node in facts.group_of)
        calls.append(
            KernelCall(
                graph_id=facts.graph_id,
                position=len(calls),
                kernel_id=facts.kernel_id(name),
                group_ids=tuple(groups),
                step=step,
                line=lines.next(name),
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


def _kernel(facts: GraphFacts, plan: Plan, line: LineSeen, name: str, nodes: tuple[str, ...]) -> Kernel:
    written = {buffer for node in nodes if node in facts.nodes for buffer in facts.nodes[node].buffers}
    written |= {line.buffer} if line.buffer else set()
    written |= {buffer.buffer for buffer in facts.allocated_by(line)}
    read = set(line.args) - written | _taken_over(plan, written)
    flops = [facts.nodes[node].flops for node in nodes if node in facts.nodes]
    source = facts.sources.get(name)
    return Kernel(
        kernel_id=facts.kernel_id(name),
        graph_id=facts.graph_id,
        name=name,
        backend=_backend(facts, line, nodes),
        source=_body(source.source) if source else None,
        bytes_read=_bytes(plan, read) if read or not written else 0,
        bytes_written=_bytes(plan, written),
        flops=sum(count for count in flops if count) if any(flops) else None,
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


def _bytes(plan: Plan, names: Iterable[str]) -> int | None:
    sizes = [plan.buffers[name].bytes for name in names if name in plan.buffers]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None
