"""What the canvas of the Fusion screen shows, read from the address: level, opened items, colours, neighbourhood."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from fusionscope.app import data, style
from fusionscope.app.components.canvas import Step
from fusionscope.app.figures.dag import KernelGraph, kernel_graph
from fusionscope.app.figures.dag_colours import FIGURES, Paint, change_of
from fusionscope.app.figures.dag_items import OTHER, Facts, Tree, tree
from fusionscope.app.screens._fusion_diff import recorded, relative
from fusionscope.app.screens._why import computed
from fusionscope.storage.queries import fusion, fusion_facts, fusion_ops, replay
from fusionscope.storage.queries.fusion import Decision, Group
from fusionscope.storage.queries.fusion_diff import Match
from fusionscope.storage.queries.fusion_ops import Handover, Use
from fusionscope.storage.queries.graphs import DecidedGraph
from fusionscope.storage.queries.replay import Fusion


@dataclass(frozen=True, slots=True)
class Asked:
    """The state of the picture, all of it in the address."""

    level: str
    colour: str
    toggled: frozenset[str]
    hops: int | None  # None: the whole graph
    around: str | None  # the node at the centre of the neighbourhood
    replay: bool
    refused: bool
    both: bool
    against: str | None  # run to compare with

    @property
    def token(self) -> str:
        """Changes when the picture must be drawn anew."""
        return repr(replace(self, toggled=frozenset(), around=self.around if self.hops else None)) + repr(
            sorted(self.toggled)
        )


def toggled() -> frozenset[str]:
    """Items that are open where their level closes them, or closed where it opens them: `?open=a,b`."""
    return frozenset(filter(None, st.query_params.get("open", "").split(",")))


def toggle(item: str) -> None:
    """Open or close an item, in the address."""
    ids = toggled() ^ {item}
    if ids:
        st.query_params["open"] = ",".join(sorted(ids))
    else:
        st.query_params.pop("open", None)


@st.cache_resource(show_spinner=False, max_entries=40)
def drawn(
    key: str, asked: Asked, _run_id: str, _graphs: Sequence[DecidedGraph], _matches: Sequence[Match]
) -> KernelGraph:
    """The picture, shared by all sessions; `key` names run, graphs and the state of the library."""
    groups = {graph.graph_id: facts_of(_run_id, graph, asked) for graph in _graphs}
    trees = [
        (graph.direction or graph.graph_id, tree(groups[graph.graph_id], level_of(asked), asked.toggled, prefix(i)))
        for i, graph in enumerate(_graphs)
    ]
    refused = data.ask(fusion.decisions, _run_id, _graphs[0].graph_id) if asked.refused else []
    wanted = [pair for pair in refused if pair.verdict == "refused" and pair.shared_bytes]
    return kernel_graph(trees, paint(_run_id, _graphs, asked, _matches), links(_run_id, _graphs, trees), wanted)


def level_of(asked: Asked) -> str:
    """A replay shows the scheduler nodes in every group."""
    return "op" if asked.replay else asked.level


def prefix(number: int) -> str:
    """What the ids of a graph of the picture begin with."""
    return OTHER * number


def facts_of(run_id: str, graph: DecidedGraph, asked: Asked) -> Facts:
    """The rows of a graph, or of the neighbourhood in it that is asked for."""
    groups: Sequence[Group] = data.ask(fusion.groups, run_id, graph.graph_id)
    handovers: Sequence[Handover] = data.ask(fusion_ops.handovers, run_id, graph.graph_id)
    if asked.hops is not None and (centre := named(groups, asked.around)) is not None:
        near = neighbourhood(handovers, centre.group_id, asked.hops)
        groups = [group for group in groups if group.group_id in near]
        handovers = [h for h in handovers if h.src_group in near and h.dst_group in near]
    facts = Facts(groups, handovers, data.ask(fusion.lowerings, run_id, graph.graph_id))
    if asked.replay:
        nodes = data.ask(fusion_ops.scheduler_nodes, run_id, graph.graph_id)
        return replace(facts, ops=nodes, uses=[Use(h.src, h.dst) for h in handovers], lowerings=[])
    if asked.level == "op" or asked.toggled:
        ops = data.ask(fusion_ops.ops, run_id, graph.graph_id)
        return replace(facts, ops=ops, uses=data.ask(fusion_ops.uses, run_id, graph.graph_id))
    return facts


def named(groups: Sequence[Group], name: str | None) -> Group | None:
    """The group of that name, or the one that holds the scheduler node or FX node of that name."""
    group_id = (name or "").partition("/")[0]
    held = next((group for group in groups if group_id == group.group_id or group_id in group.members), None)
    return held or next((group for group in groups if name in group.ops), None)


def neighbourhood(handovers: Iterable[Handover], centre: str, hops: int) -> set[str]:
    """Groups that `hops` buffers or fewer lie between them and the centre, whichever way the data flows."""
    beside: dict[str, set[str]] = {}
    for h in handovers:
        beside.setdefault(h.src_group, set()).add(h.dst_group)
        beside.setdefault(h.dst_group, set()).add(h.src_group)
    near = {centre}
    for _ in range(hops):
        near |= {other for group in near for other in beside.get(group, ())}
    return near


def paint(run_id: str, graphs: Sequence[DecidedGraph], asked: Asked, matches: Sequence[Match]) -> Paint:
    """The colouring that is asked for; figures of several graphs share one scale."""
    if asked.colour == "change":
        return paint_change(matches)
    figure = FIGURES.get(asked.colour)
    if figure is None:
        return Paint()
    costs = [(prefix(i), data.ask(fusion_facts.costs, run_id, graph.graph_id)) for i, graph in enumerate(graphs)]
    return Paint(figure, {mark + cost.group_id: figure.read(cost) for mark, found in costs for cost in found})


def paint_change(matches: Sequence[Match]) -> Paint:
    """By the change of the time where both runs have it, else of the bytes; what has none says what became of it."""
    figure = (recorded(matches) or ["time"])[0]
    values = {name: relative(match, figure) for match in matches for name in match.after}
    words = {name: match.status for match in matches for name in match.after if values[name] is None}
    return Paint(change_of(figure), values, words)


def links(run_id: str, graphs: Sequence[DecidedGraph], trees: Sequence[tuple[str, Tree]]) -> list[tuple[str, str, str]]:
    """Saved values from the forward to the backward of a picture that shows both, by the boxes at their ends."""
    if len(graphs) < 2:
        return []
    order = sorted(range(2), key=lambda i: graphs[i].direction == "backward")
    saved = data.ask(fusion_ops.saved_links, run_id, *(graphs[i].graph_id for i in order))
    shown = [_visible(trees[i][1]) for i in order]
    found: dict[tuple[str, str], dict[str, int | None]] = {}
    for link in saved:
        src = shown[0].get(link.src_groups[0]) if link.src_groups else None
        for dst in map(shown[1].get, link.dst_groups):
            if src and dst:
                found.setdefault((src, dst), {})[link.src_node] = link.bytes
    return [(src, dst, _saved(values)) for (src, dst), values in found.items()]


def _saved(values: Mapping[str, int | None]) -> str:
    """`saved: addmm, gelu`, and how many bytes they are."""
    known = [count for count in values.values() if count is not None]
    return f"saved: {style.short(', '.join(values), 60)}\n{style.size(sum(known) if known else None)}"


def _visible(shown: Tree) -> dict[str, str]:
    """Group → the item that shows it: itself, or the closed module that holds it."""
    found: dict[str, str] = {}
    waiting = list(shown.items)
    for item in waiting:
        if item.kind == "group" or not item.is_open:
            found |= {group.group_id: item.id for group in item.groups}
        else:
            waiting += item.children
    return found


def steps(run_id: str, graph_id: str, groups: Sequence[Group]) -> tuple[Step, ...]:
    """The fusions in the order taken, each as the boxes that it joins and what is told of it."""
    box = {m: f"{g.group_id}/{m}" if len(g.members) > 1 else g.group_id for g in groups for m in g.members}
    decisions = data.ask(fusion.decisions, run_id, graph_id)
    taken = {d.order_taken: d for d in decisions if d.order_taken is not None}
    members: dict[str, tuple[str, ...]] = {member: (member,) for member in box}
    found = []
    for step in data.ask(replay.rounds, run_id, graph_id):
        parts = [members[part] for part in (step.a, step.b, *step.others)]
        members[step.result] = tuple(member for part in parts for member in part)
        found.append(Step(tuple(box[name] for name in joined(parts)), told(step, taken)))
    return tuple(found)


def joined(parts: Sequence[Sequence[str]]) -> list[str]:
    """One scheduler node of each part: the last of the first, the first of the others."""
    return [parts[0][-1], *(part[0] for part in parts[1:])]


def told(step: Fusion, taken: Mapping[int, Decision]) -> str:
    """`round 2, op7 (amax) + op8 (exp), 128 KiB spared`."""
    decision = taken.get(step.order_taken) if step.order_taken is not None else None
    if decision is None:
        return f"{step.a} + {step.b}" + (f" + {style.plural(len(step.others), 'other')}" if step.others else "")
    spared = f", {style.size(decision.score_memory)} spared" if decision.score_memory else ""
    sides = " + ".join(f"{style.short(name, 20)} ({computed(ops, 2)})" for name, ops in _sides(decision))
    return f"round {step.round}, {sides}{spared}"


def _sides(decision: Decision) -> list[tuple[str, tuple[str, ...]]]:
    return [(decision.a, decision.a_ops), (decision.b, decision.b_ops)]
