"""Notices what torch compiles, records or tunes while a model is being timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from fusionscope.collector.hook import patched

_TRIGGERS = {
    CallbackTrigger.LAZY_BACKWARD: "a backward was compiled",
    CallbackTrigger.CUDAGRAPH_RECORDING: "a CUDA graph was recorded",
}


@dataclass
class CompileWatch:
    """What began since the watch began, and how often."""

    begun: Counter[str] = field(default_factory=Counter)

    def notice(self, event: CallbackArgs) -> None:
        """Note a compilation of Dynamo, of a backward, or the recording of a CUDA graph."""
        again = not event.compile_id.endswith("/0")  # frame/recompilation, torch._guards.CompileId
        compiled = "a frame was compiled again" if again else "a frame was compiled"
        self.begun[_TRIGGERS.get(event.callback_trigger, compiled)] += 1

    def since(self, before: Counter[str]) -> Counter[str]:
        """What began after `before`, a copy of `begun`."""
        return self.begun - before


@contextmanager
def compiles_watched() -> Iterator[CompileWatch]:
    """Count the compilations and autotunings that begin inside the block, in any thread.

    torch's callbacks leave autotuning out (CallbackTrigger.TRITON_AUTOTUNING is disabled in torch 2.11 to 2.14).
    """
    watch = CompileWatch()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def benchmark_all_configs(*arguments: Any, **keywords: Any) -> Any:
            watch.begun["a kernel was autotuned"] += 1
            return original(*arguments, **keywords)

        return benchmark_all_configs

    callback_handler.register_start_callback(watch.notice)
    try:
        with patched(CachingAutotuner, "benchmark_all_configs", wrap):
            yield watch
    finally:
        callback_handler.remove_start_callback(watch.notice)
