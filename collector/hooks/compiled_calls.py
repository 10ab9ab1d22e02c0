"""How long each call of a compiled callable took while the user's own program ran."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fusionscope.collector.hook import Emit, patched, unmet
from fusionscope.storage.records import Measurement

NAME = "compiled_calls"
RECORDS = (Measurement,)
TARGETS = {
    "torch._dynamo.eval_frame:OptimizeContext": ("backend_ctx_ctor",),
    "torch._dynamo.eval_frame:_TorchDynamoContext.__call__": ("fn",),
}

KEPT = 4096  # calls of one callable, the latest


@dataclass(slots=True)
class CallTimes:
    """The forward calls of one compiled callable: what `torch.compile` was given, and how long each call took."""

    name: str
    clocks: deque[Callable[[], float]] = field(default_factory=lambda: deque(maxlen=KEPT))  # -> microseconds
    discarded: int = 0  # calls during which something was compiled, or the very first one

    def measurement(self, variant: str) -> Measurement:
        """The median latency with its 10th and 90th percentile. Raises StatisticsError where no call is kept."""
        times = [clock() for clock in self.clocks]
        deciles = statistics.quantiles(times, n=10, method="inclusive") if len(times) > 1 else [times[0]] * 9
        return Measurement(
            variant=variant,
            metric="latency_us",
            median=statistics.median(times),
            p10=deciles[0],
            p90=deciles[8],
            samples=len(times),
            unit="us",
            discarded=self.discarded,
            reason="the first call, or something was compiled during it" if self.discarded else None,
            method=f"each forward call of {self.name} while the program ran; the host's clock, on CUDA its stream's",
        )


def problem() -> str | None:
    """What this torch lacks: contexts that run `enter_exit_hooks` around each call of what they compiled."""
    if (problem := unmet(TARGETS)) is not None:
        return problem
    from torch._dynamo.eval_frame import _TorchDynamoContext

    known = "enter_exit_hooks" in _TorchDynamoContext.__init__.__code__.co_names
    return None if known else "torch's compile contexts have no enter_exit_hooks"


@contextmanager
def install(emit: Emit) -> Iterator[None]:
    """Time the calls inside the context and emit the latency of the callable that took the most time."""
    with CompiledCalls().install(emit):
        yield


@dataclass(slots=True)
class CompiledCalls:
    """The hook as an object, for who wants to see the calls themselves; they stand in the order of `torch.compile`."""

    variant: str = "compiled"
    calls: list[CallTimes] = field(default_factory=list)
    NAME: str = NAME
    RECORDS: tuple[type[Any], ...] = RECORDS

    def problem(self) -> str | None:
        """What this torch lacks, or None."""
        return problem()

    @contextmanager
    def install(self, emit: Emit) -> Iterator[None]:
        """Time the calls inside the context and emit the latency of the callable that took the most time."""
        with _timed_calls(emit, self.calls):
            yield
        with emit.guarded():
            busiest = self.busiest()
            if busiest is not None:
                emit(busiest.measurement(self.variant))

    def busiest(self) -> CallTimes | None:
        """The callable that took the most time in all; None where none was called again once it was compiled."""
        called = [c for c in self.calls if c.clocks]
        return max(called, key=lambda c: sum(clock() for clock in c.clocks), default=None)


@contextmanager
def _timed_calls(emit: Emit, calls: list[CallTimes]) -> Iterator[None]:
    """Time every call of what is compiled inside the context.

    `torch.compile` makes one OptimizeContext per callable and calls it on the callable: for a module once more, on
    the bound method that OptimizedModule runs. Its `enter_exit_hooks` are run around every call with Dynamo off
    (torch/_dynamo/eval_frame.py, compile_wrapper), whatever the stance, so nothing else of the call changes.
    """
    from torch._dynamo.eval_frame import OptimizeContext

    thread = _Thread()

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def observed(context: Any, fn: Any) -> Any:
            with emit.guarded():
                if not any(isinstance(hook, _Stopwatch) for hook in context.enter_exit_hooks):
                    calls.append(CallTimes(_name_of(fn)))
                    context.enter_exit_hooks.append(_Stopwatch(calls[-1], thread, emit))
            return original(context, fn)

        return observed

    with patched(OptimizeContext, "__call__", wrap):
        yield


class _Thread(threading.local):
    """How many compiled callables this thread is inside of."""

    depth = 0


@dataclass(slots=True, eq=False)
class _Stopwatch:
    """An enter hook: starts a clock and returns what stops it. Of nested calls the outermost is timed."""

    calls: CallTimes
    thread: _Thread
    emit: Emit
    entered: bool = False

    def __call__(self) -> Callable[[], None]:
        self.thread.depth += 1
        stop: Callable[[], Callable[[], float]] | None = None
        frames = 0
        if self.thread.depth == 1 and self.emit.open:
            with self.emit.guarded():
                frames, stop = frames_compiled(), _started()

        def leave() -> None:
            self.thread.depth -= 1
            if stop is not None:
                with self.emit.guarded():
                    self._keep(stop(), compiled=frames_compiled() != frames)

        return leave

    def _keep(self, clock: Callable[[], float], *, compiled: bool) -> None:
        if compiled or not self.entered:
            self.calls.discarded += 1
        else:
            self.calls.clocks.append(clock)
        self.entered = True


def _name_of(fn: Any) -> str:
    """A module's class, also of its bound method (`module.compile()`), or a function's own name."""
    import torch

    owner = getattr(fn, "__self__", fn)
    return type(owner).__name__ if isinstance(owner, torch.nn.Module) else getattr(fn, "__qualname__", repr(fn))


def frames_compiled() -> int:
    """Frames that Dynamo has tried to compile so far (counted in torch/_dynamo/convert_frame.py)."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["total"])


def _started() -> Callable[[], Callable[[], float]]:
    """Start a clock; stopping it gives a function that tells the microseconds between, once they are known."""
    import torch

    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if in_use and not torch.cuda.is_current_stream_capturing():
        return _started_on_stream()
    start = time.perf_counter()

    def stop() -> Callable[[], float]:
        elapsed = (time.perf_counter() - start) * 1e6
        return lambda: elapsed

    return stop


def _started_on_stream() -> Callable[[], Callable[[], float]]:
    """The same by events of the current CUDA stream: kernels run on after the host's call returned."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()

    def elapsed() -> float:
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3

    def stop() -> Callable[[], float]:
        end.record()
        return elapsed

    return stop
