"""The predicates inside can_fuse. Backends refuse without a word (the C++ one always does), so each answer is noted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fusionscope.collector import whereabouts
from fusionscope.collector.hook import Emit, located, patched, unmet
from fusionscope.collector.observations import PredicateAnswered

NAME = "fusion_predicates"
RECORDS = (PredicateAnswered,)

_SHARED = ("scheduler", "node1", "node2", "shared_data_score")
TARGETS: dict[str, tuple[str, ...]] = {
    "torch._inductor.choices:InductorChoices.can_fuse": _SHARED,
    "torch._inductor.choices:InductorChoices.can_fuse_vertical": _SHARED,
    "torch._inductor.choices:InductorChoices.can_fuse_horizontal": _SHARED,
    "torch._inductor.scheduler:Scheduler.can_fuse_vertical": (),
    "torch._inductor.scheduler:FusedMixOrderReductions.can_fuse_with": ("other",),
    "torch._inductor.codegen.cpp:CppScheduling.can_fuse_vertical": (),
    "torch._inductor.codegen.cpp:CppScheduling.can_fuse_horizontal": (),
    "torch._inductor.codegen.simd:SIMDScheduling.can_fuse_vertical": (),
    "torch._inductor.codegen.simd:SIMDScheduling.can_fuse_horizontal": (),
    "torch._inductor.codegen.cuda_combined_scheduling:CUDACombinedScheduling.can_fuse_vertical": (),
    "torch._inductor.codegen.cuda_combined_scheduling:CUDACombinedScheduling.can_fuse_horizontal": (),
}
_SINCE_2_13: dict[str, tuple[str, ...]] = {
    "torch._inductor.scheduler:FusedNestedReductions.can_fuse_with": ("other",),
}


def problem() -> str | None:
    """Without these a silent refusal could not be told from a missing test."""
    return unmet(TARGETS)


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Note each predicate's answer, and the shared bytes where the predicate is handed them."""

    def wrap(label: str, takes_shared: bool) -> Callable[[Any], Callable[..., bool]]:
        def around(original: Callable[..., bool]) -> Callable[..., bool]:
            def predicate(*args: Any, **kwargs: Any) -> bool:
                answer = original(*args, **kwargs)
                with emit.guarded():
                    shared = args[3] if takes_shared and len(args) > 3 else None
                    emit(PredicateAnswered(whereabouts.graph_id() or "", label, bool(answer), _integer(shared)))
                return answer

            return predicate

        return around

    with ExitStack() as stack:
        for target, parameters in (TARGETS | (_SINCE_2_13 if unmet(_SINCE_2_13) is None else {})).items():
            owner, method = located(target)
            stack.enter_context(patched(owner, method, wrap(f"{owner.__name__}.{method}", parameters == _SHARED)))
        yield


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
