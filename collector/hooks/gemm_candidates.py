"""The candidates for an operation that a library or a template can compute, before any is tried.

Inductor hands each list to functions that may thin it out (select_algorithm.add_preprocessing_fn); this one looks at
it after the others, and returns it as it is. It sees lists of one, which no contest follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fusionscope.collector import contests, whereabouts
from fusionscope.collector.hook import Emit, unmet
from fusionscope.collector.observations import Candidate, CandidatesListed

NAME = "gemm_candidates"
RECORDS = (CandidatesListed,)
TARGETS = {
    "torch._inductor.select_algorithm:add_preprocessing_fn": ("fn",),
    "torch._inductor.select_algorithm:AlgorithmSelectorCache.add_preprocessing_fn": ("fn",),
}

_KINDS = {
    "ExternKernelCaller": "library",
    "TritonTemplateCaller": "triton",
    "CppTemplateCaller": "cpp",
    "SubgraphChoiceCaller": "subgraph",
}


def problem() -> str | None:
    """The registration is torch's own."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Register for the time of the recording."""
    from torch._inductor import select_algorithm

    def listed(choices: Any) -> Any:
        with emit.guarded():
            _emit_candidates(emit, choices)
        return choices

    select_algorithm.add_preprocessing_fn(listed)
    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    try:
        yield
    finally:
        if listed in functions:  # else the program has cleared them
            functions.remove(listed)


def _emit_candidates(emit: Emit, choices: Any) -> None:
    graph_id = whereabouts.graph_id()
    if graph_id is None or not choices:
        return
    emit(
        CandidatesListed(
            graph_id=graph_id,
            contest=contests.begin(graph_id, choices),
            node=whereabouts.fx_node(),
            op=_operator(),
            shapes=_shapes(choices),
            candidates=tuple(_candidate(choice) for choice in choices),
        )
    )


def _candidate(choice: Any) -> Candidate:
    config = choice.description.replace(", ", " ") if choice.description else None
    return Candidate(choice.name, _kind(choice), config)


def _kind(choice: Any) -> str:
    wrapped = getattr(choice, "_wrapped", choice)  # of DataProcessorChoiceCallerWrapper, which packs the inputs
    return _KINDS.get(type(wrapped).__name__, "other")


def _shapes(choices: Any) -> str:
    """Sizes of the inputs, as a library candidate takes them: a template may pack them first."""
    asked = next((choice for choice in choices if _kind(choice) == "library"), choices[0])
    return ", ".join("x".join(map(str, node.get_size())) for node in asked.input_nodes)


def _operator() -> str | None:
    """The operator being lowered, such as addmm; the contest itself has a name only once it is held."""
    from torch._inductor.virtualized import V

    target = getattr(V.current_node, "target", None)
    return str(target).split(".")[1] if "." in str(target) else None
