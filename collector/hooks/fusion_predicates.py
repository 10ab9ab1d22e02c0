"""The predicates inside can_fuse. Backends refuse without a word (the C++ one always does), so each answer is noted."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, first_problem, missing, patched
from fusionscope.collector.observations import PredicateAnswered

NAME = "fusion_predicates"
RECORDS = (PredicateAnswered,)

_CLASSES = (
    ("choices", "InductorChoices", ("can_fuse", "can_fuse_vertical", "can_fuse_horizontal")),
    ("scheduler", "Scheduler", ("can_fuse_vertical",)),
    ("codegen.cpp", "CppScheduling", ("can_fuse_vertical", "can_fuse_horizontal")),
    ("codegen.simd", "SIMDScheduling", ("can_fuse_vertical", "can_fuse_horizontal")),
    ("codegen.cuda_combined_scheduling", "CUDACombinedScheduling", ("can_fuse_vertical", "can_fuse_horizontal")),
)


def _targets() -> Iterator[tuple[Any, str]]:
    """Every predicate that its class defines itself; a class may inherit one, which is then noted at its origin."""
    for module, name, methods in _CLASSES:
        owner = getattr(importlib.import_module(f"torch._inductor.{module}"), name)
        yield from ((owner, method) for method in methods if method in vars(owner))


def problem() -> str | None:
    """Without these a silent refusal could not be told from a missing test."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.codegen.cpp import CppScheduling

    return first_problem(missing(InductorChoices, "can_fuse"), missing(CppScheduling, "can_fuse_horizontal"))


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note each predicate's answer, and the shared bytes where the predicate is handed them."""

    def wrap(label: str, takes_shared: bool) -> Callable[[Any], Callable[..., bool]]:
        def around(original: Callable[..., bool]) -> Callable[..., bool]:
            def predicate(*args: Any, **kwargs: Any) -> bool:
                answer = original(*args, **kwargs)
                with emit.guarded():
                    shared = args[3] if takes_shared and len(args) > 3 else None  # scheduler, node1, node2, shared
                    emit(PredicateAnswered(whereabouts.graph_id() or "", label, bool(answer), _integer(shared)))
                return answer

            return predicate

        return around

    with ExitStack() as stack:
        for owner, method in _targets():
            label = f"{owner.__name__}.{method}"
            stack.enter_context(patched(owner, method, wrap(label, owner.__name__ == "InductorChoices")))
        yield


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
