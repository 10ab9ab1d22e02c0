"""Records a run: install the hooks, let the user's code compile, drain what they saw, publish it."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionscope.collector import environment, whereabouts
from fusionscope.collector.device import MeasuredRates, device_fact
from fusionscope.collector.hook import Emit, Hook
from fusionscope.collector.hooks import HOOKS
from fusionscope.collector.ledger import Ledger
from fusionscope.collector.observations import COMPILE_ENDS, TraceEvent
from fusionscope.collector.row_limit import RowLimit
from fusionscope.collector.signals import Terminated, ctrl_c_waits, sigterm_unwinds
from fusionscope.collector.torch_facts import outside_supported_range
from fusionscope.collector.variants import besides
from fusionscope.storage.database import StorageError
from fusionscope.storage.library import Library, default_address
from fusionscope.storage.records import HookStatus, Run
from fusionscope.storage.spool import Spool

if TYPE_CHECKING:
    from fusionscope.collector.ledger.plan import Plan
    from fusionscope.collector.measure import Comparison

_ANY_BACKEND = ("trace_stream", "backends", "compiled_calls", "counters")  # hooks that see more than Inductor


class StopRecording(BaseException):
    """As many compiles as asked for were recorded: unwinds the user's code."""


class AlreadyRecording(RuntimeError):
    """One process records one run at a time: the hooks would see each other's work twice."""


class Recording:
    """A run being recorded. In a forked child it does nothing."""

    def __init__(self, run: Run, store: Path, *, strict: bool, stop_after: int | None) -> None:
        import torch

        self.run_id, self.store = run.run_id, store
        self.rates: MeasuredRates | None = None  # of the device, where measuring found them
        self._run, self._strict, self._stop_after = run, strict, stop_after
        self._ledger = Ledger(time.time(), torch._dynamo.config.recompile_limit)
        self._spool = Spool.create(store, run)
        self._rows = RowLimit()
        self._flushing = threading.RLock()
        self._compiles = 0
        self._own = Emit("recorder", self._ledger.add, strict)  # what is not a hook's: folding, writing, measuring
        self._emits: list[Emit] = []
        self._unavailable: list[HookStatus] = []
        _live.add(self)

    @property
    def phase(self) -> str:
        """drive while the user's own calls run, measure while the recorder runs the model again."""
        return whereabouts.phase()

    def measuring(self) -> AbstractContextManager[None]:
        """Compiles inside the context are caused by measuring and kept apart."""
        return whereabouts.measuring()

    def emit(self, record: Any) -> None:
        """Add a record of your own to the run."""
        self._own(record)

    def fail(self, reason: str) -> None:
        """The run ends as failed."""
        self._run = replace(self._run, status="failed", status_reason=reason)

    def partial(self, reason: str) -> None:
        """The run ends as partial, unless it failed."""
        if self._run.status != "failed":
            self._run = replace(self._run, status="partial", status_reason=reason)

    def compare(
        self,
        model: Callable[..., Any],
        inputs: Sequence[Any],
        *,
        compiled: Callable[..., Any] | None = None,
        backward: bool = False,
        variants: Sequence[str] = (),
        progress: Callable[[str], None] | None = None,
    ) -> Comparison:
        """Measure `model` eager against compiled on `inputs`; grad mode is the caller's.

        `compiled` defaults to `torch.compile(model)` in the run's mode. `variants` are measured besides, names of
        `fusionscope.collector.variants`; ValueError where one is unknown. See `fusionscope.collector.measure.compare`.
        """
        import torch

        from fusionscope.collector.measure import compare, maker
        from fusionscope.collector.measure.device import measured_rates

        eager = getattr(model, "_orig_mod", model)  # of torch.compile(module)
        asked = besides(variants, self._run.mode, self._run.dynamic)
        with self.measuring():
            default = torch.compile(eager, mode=self._run.mode, dynamic=self._run.dynamic)
            comparison = compare(
                eager,
                default if compiled is None else compiled,  # a compiled module without len() has no truth value
                inputs,
                backward=backward,
                others={name: maker(name, eager, inputs) for name in asked},
                emit=self.emit,
                graph_of=self._graph_of,
                plan_of=self._plan_of,
                progress=progress or (lambda _: None),
            )
            if backward:
                self._try_budgets(eager, inputs)
            if self.rates is None and environment.device()[0] == "cuda":
                self.rates = measured_rates(torch.device("cuda"))
            return comparison

    def _try_budgets(self, model: Callable[..., Any], inputs: Sequence[Any]) -> None:
        from fusionscope.collector.measure.budgets import budget_records

        forwards = [graph_id for graph_id in self._ledger.plans if graph_id.endswith(".forward")]
        with self._own.guarded():
            for record in budget_records(model, inputs, [f"{graph_id.split('.')[0]}.joint" for graph_id in forwards]):
                self.emit(record)

    def _graph_of(self, wrapper_file: str) -> str | None:
        self._flush()
        return self._ledger.texts.graph_of(wrapper_file)

    def _plan_of(self, wrapper_file: str) -> Plan | None:
        return self._ledger.plans.get(self._graph_of(wrapper_file) or "")

    def _sink(self, observation: Any) -> None:
        self._ledger.add(observation)
        if isinstance(observation, TraceEvent) and observation.kind in COMPILE_ENDS:
            self._flush()
            self._compiles += observation.kind == "compilation_metrics"
            if self._stop_after is not None and self._compiles >= self._stop_after:
                raise StopRecording(f"stopped after {self._compiles} compiles, as asked")

    def _flush(self, *, final: bool = False) -> None:
        """Write what is complete to the unpublished folder: a killed process loses only the compile it was in."""
        with self._flushing, self._own.guarded():
            self._spool.append(self._rows.within(self._ledger.drain(final=final)))

    @contextmanager
    def _hooks(self, hooks: Sequence[Hook]) -> Iterator[None]:
        with ExitStack() as installed:
            for hook in hooks:
                self._install(hook, installed)
            yield

    def _install(self, hook: Hook, installed: ExitStack) -> None:
        emit = Emit(hook.NAME, self._sink, self._strict)
        problem = None
        with emit.guarded():
            problem = hook.problem()
            if problem is None:
                installed.enter_context(hook.install(emit))
        if (reason := emit.reason or problem) is not None:
            self._unavailable.append(HookStatus(hook=hook.NAME, state="unavailable", reason=reason))
            return
        emit.self_s = 0.0  # importing what is observed is no overhead: torch would import it anyway
        self._emits.append(emit)

    def _publish(self) -> None:
        if not self._own.open:
            return  # a forked child: the parent holds the run
        with self._own.guarded():
            if (fact := device_fact(self.rates)) is not None:
                self.emit(fact)
        self._flush(final=True)
        with self._own.guarded():
            self._spool.rewrite(self._ledger.breaks())
        self._spool.append(self._statuses())
        self._spool.publish(self._final_run())
        self.close()

    def _statuses(self) -> list[HookStatus]:
        elsewhere = None if self._ledger.texts.compiled else self._other_backends()
        statuses = [emit.status() for emit in self._emits] + self._unavailable
        if self._own.lost:
            statuses.append(self._own.status())
        return [*(_explained(status, elsewhere) for status in statuses), *self._rows.statuses()]

    def _other_backends(self) -> str | None:
        others = self._ledger.backends_without_inductor()
        return f"not recorded: backend {', '.join(others)}" if others else None

    def _final_run(self) -> Run:
        lost = sorted({emit.hook for emit in [*self._emits, self._own] if emit.lost})
        unavailable = [status.hook for status in self._unavailable + self._rows.statuses()]
        if lost or unavailable:
            self.partial(f"not everything was recorded: {', '.join([*lost, *unavailable])}")
        if (elsewhere := self._other_backends()) is not None:
            self.partial(elsewhere)
        kind, name = environment.device()
        overhead = sum(emit.self_s for emit in [*self._emits, self._own])
        return replace(
            self._run,
            device_kind=kind,
            device_name=name,
            fp32_matmul=environment.fp32_matmul(),
            recorder_overhead_s=overhead,
        )

    def close(self) -> None:
        """Take nothing more."""
        for emit in [*self._emits, self._own]:
            emit.open = False
        _live.discard(self)


_live: weakref.WeakSet[Recording] = weakref.WeakSet()


def _leave_to_parent() -> None:
    for recording in list(_live):
        recording.close()


os.register_at_fork(after_in_child=_leave_to_parent)


def _explained(status: HookStatus, elsewhere: str | None) -> HookStatus:
    """A hook of Inductor that saw nothing, because the graphs went to another backend, says so."""
    if elsewhere is None or status.recorded or status.hook in _ANY_BACKEND or status.state != "recorded":
        return status
    return replace(status, state="unavailable", reason=elsewhere)


@contextmanager
def record(
    name: str | None = None,
    *,
    project: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
    store: str | Path | None = None,
    mode: str | None = None,
    dynamic: bool | None = None,
    source_path: str | Path | None = None,
    command: str | None = None,
    options: str | None = None,
    keep_caches: bool = False,
    stop_after: int | None = None,
    strict: bool = False,
    import_on_exit: bool = True,
    hooks: Sequence[Hook] = HOOKS,
) -> Iterator[Recording]:
    """Record every compile inside the context, and publish the run when it ends, however it ends.

    Torch's FX graph cache is off inside, since a hit would hide the decisions; `keep_caches` leaves it on. Runs of one
    `group` share a line of the library. `strict` raises what goes wrong in a hook, which is otherwise counted.
    Raises AlreadyRecording inside another recording, and StorageError when the store cannot be written.
    """
    if _live:
        raise AlreadyRecording("this process is already recording a run: one recording at a time")
    whereabouts.reset()
    run = environment.begin_run(
        name,
        project=project,
        group=group,
        tags=tags,
        mode=mode,
        dynamic=dynamic,
        source_path=source_path,
        command=command,
        options=options,
        fx_cache="on" if keep_caches else "off",
    )
    folder = Path(store or default_address()).expanduser().absolute()
    recording = Recording(run, folder, strict=strict, stop_after=stop_after)
    _warn_of_version(run.torch_version or "")
    with sigterm_unwinds():
        try:
            with _cache_policy(keep_caches), _out_of_dynamos_sight(), recording._hooks(hooks):
                yield recording
        except StopRecording as stop:
            recording.partial(str(stop))
        except KeyboardInterrupt:
            recording.partial("interrupted by Ctrl-C")
            raise
        except Terminated:
            recording.partial("ended by SIGTERM")
        except SystemExit as end:
            if end.code not in (None, 0):
                recording.fail(f"the program exited with {end.code!r}")
            raise
        except BaseException as error:
            recording.fail(f"the recorded code raised {type(error).__name__}: {error}".splitlines()[0])
            raise
        finally:
            _finish(recording, import_on_exit)


def _finish(recording: Recording, import_on_exit: bool) -> None:
    """Publish and import; a store that fails now is told of, and what was flushed stays in its inbox."""
    if not recording._own.open:
        return
    try:
        with ctrl_c_waits():
            recording._publish()
            if import_on_exit:
                Library(recording.store).import_inbox()
    except StorageError as error:
        _say(f"the run could not be published: {error} What was recorded stays in {recording.store / 'inbox'}.")
        recording.close()
    else:
        _say(_summary(recording))


def _summary(recording: Recording) -> str:
    run = recording._run
    ending = "" if run.status == "complete" else f" ({run.status}: {run.status_reason})"
    elsewhere = recording.store != default_address().absolute()
    command = shlex.join(["fusionscope", "app", "--store", str(recording.store)]) if elsewhere else "fusionscope app"
    return f"recorded {run.name} as {run.run_id}{ending}. Open it with `{command}` at /overview?run={run.run_id}"


def _warn_of_version(torch_version: str) -> None:
    if (problem := outside_supported_range(torch_version)) is not None:
        _say(problem)


def _say(text: str) -> None:
    sys.stderr.write(f"fusionscope: {text}\n")


@contextmanager
def _out_of_dynamos_sight() -> Iterator[None]:
    """Keep Dynamo from compiling our own frames, which it meets where compiled autograd runs inside a step."""
    from torch._dynamo import trace_rules

    before = list(trace_rules.SKIP_DIRS)
    trace_rules.add("fusionscope.collector")
    try:
        yield
    finally:
        trace_rules.SKIP_DIRS[:] = before
        trace_rules._recompile_re()


@contextmanager
def _cache_policy(keep_caches: bool) -> Iterator[None]:
    """Without the FX graph cache the scheduler always runs; kernels stay cached (torch/_inductor/codecache.py).

    From torch 2.13 on a setting holds only in the thread that made it; what stands for an environment variable holds
    in all, the one that compiles a backward included (torch/utils/_config_module.py).
    """
    import torch._inductor.config

    if keep_caches:
        yield
        return
    settings: Any = torch._inductor.config
    cache = settings._config["fx_graph_cache"]
    before, cache.env_value_force = cache.env_value_force, False
    try:
        yield
    finally:
        cache.env_value_force = before
