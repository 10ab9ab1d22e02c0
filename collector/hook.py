"""The hook contract: what a hook is, where it writes, and the promise that it never changes the run."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from fusionscope.storage.records import HookStatus


class Hook(Protocol):
    """A module that observes one fragile target of torch and restores exactly what it found."""

    @property
    def NAME(self) -> str:  # noqa: N802 — a module's constant
        """What the coverage statement calls it."""

    @property
    def RECORDS(self) -> tuple[type[Any], ...]:  # noqa: N802
        """Records and observations that it may emit."""

    def problem(self) -> str | None:
        """Say in words why the target cannot be observed on this torch, or None."""

    def install(self, emit: Emit) -> AbstractContextManager[None]:
        """Observe the target inside the context."""


@dataclass(slots=True)
class Emit:
    """What one hook writes to. It counts what was taken, what was lost and the time that it cost."""

    hook: str
    sink: Callable[[Any], None]
    strict: bool = False  # raise instead of counting (the tests)
    recorded: int = 0
    lost: int = 0
    self_s: float = 0.0
    reason: str | None = None  # of the first loss
    open: bool = True  # closed in forked children and after the run
    _depth: int = field(default=0, repr=False)

    def __call__(self, observation: Any) -> None:
        if self.open:
            self.sink(observation)
            self.recorded += 1

    def guarded(self) -> AbstractContextManager[None]:
        """Run a hook's own code: an exception is counted and kept in words, never raised into torch."""
        return _Guard(self)

    def lose(self, error: Exception) -> None:
        """Count an observation that raised; the first reason is kept in words."""
        self.lost += 1
        self.reason = self.reason or f"{type(error).__name__}: {error}".splitlines()[0][:300]

    def status(self) -> HookStatus:
        """Sum up what this hook recorded."""
        state = "recorded" if not self.lost else "partial" if self.recorded else "failed"
        return HookStatus(
            hook=self.hook,
            state=state,
            reason=self.reason,
            recorded=self.recorded,
            lost=self.lost,
            self_s=self.self_s,
        )


class _Guard(AbstractContextManager[None]):
    """What `Emit.guarded` gives: a class, since a generator costs twice as much and torch is asked so often."""

    __slots__ = ("_emit", "_started")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def __enter__(self) -> None:
        self._emit._depth += 1
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        emit = self._emit
        emit._depth -= 1
        if not emit._depth:  # guarded code may emit through guarded code: time is counted once
            emit.self_s += time.perf_counter() - self._started
        if not isinstance(error, Exception):
            return False
        emit.lose(error)
        return not emit.strict


@contextmanager
def patched(owner: Any, name: str, wrap: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """Replace `owner.name` by `wrap(original)` inside the context; static and class methods stay what they are."""
    found = inspect.getattr_static(owner, name)
    own = name in vars(owner)
    kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
    original = found.__func__ if kind else found
    new = functools.update_wrapper(wrap(original), original)
    setattr(owner, name, kind(new) if kind else new)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, found)
        else:
            delattr(owner, name)


@contextmanager
def listening(logger: logging.Logger, handler: logging.Handler, level: int) -> Iterator[None]:
    """Hear a logger from `level` on inside the context; lines that the user did not ask for go nowhere else.

    torch._logging.set_logs() resets the levels of torch's loggers, so that they are set again after it.
    """
    from torch._logging import _internal

    had = _turned_up(logger, level)

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        def _init_logs(*args: Any, **kwargs: Any) -> None:
            nonlocal had
            original(*args, **kwargs)
            had = _turned_up(logger, level)

        return _init_logs

    logger.addHandler(handler)
    try:
        with patched(_internal, "_init_logs", wrap):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(had[0])
        logger.propagate = had[1]


def _turned_up(logger: logging.Logger, level: int) -> tuple[int, bool]:
    """Let a logger speak from `level` on, to its own handlers alone; returns its level and propagation as found."""
    had = logger.level, logger.propagate
    if not logger.isEnabledFor(level):
        logger.setLevel(level)
        logger.propagate = False
    return had


def missing(owner: Any, name: str, *parameters: str) -> str | None:
    """Say what `owner.name` lacks: the whole attribute, or one of the leading parameters that a hook relies on."""
    label = f"{getattr(owner, '__name__', owner)}.{name}"
    target = getattr(owner, name, None)
    if target is None:
        return f"torch has no {label}"
    absent = [p for p in parameters if p not in inspect.signature(target).parameters]
    return f"{label} has no parameter {', '.join(absent)}" if absent else None


def located(target: str) -> tuple[Any, str]:
    """The owner and the name behind "module:Class.attribute". Raises ImportError or AttributeError where absent."""
    module, _, path = target.partition(":")
    *outer, name = path.split(".")
    return functools.reduce(getattr, outer, importlib.import_module(module)), name


def unmet(targets: Mapping[str, tuple[str, ...]]) -> str | None:
    """Say what a hook's targets ("module:Class.attribute" → parameters relied on) lack on this torch, or None."""
    for target, parameters in targets.items():
        try:
            problem = missing(*located(target), *parameters)
        except (ImportError, AttributeError):
            problem = f"torch has no {target}"
        if problem is not None:
            return problem
    return None
