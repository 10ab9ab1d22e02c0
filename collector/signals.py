"""SIGTERM unwinds the stack as Ctrl-C does, so that a recording is published; publishing itself is not interrupted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Terminated(BaseException):
    """SIGTERM arrived."""


@contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Turn SIGTERM into `Terminated` inside the context, where nobody else handles it and this is the main thread."""
    alone = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not alone or threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    arrived = False

    def unwind(_signal: int, _frame: FrameType | None) -> None:
        nonlocal arrived
        if os.getpid() != owner:  # a forked worker dies of it, as it would have
            _end_by_sigterm()
        arrived = True
        raise Terminated

    signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        if os.getpid() == owner:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if arrived:
                _end_by_sigterm()


@contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """Publishing takes a moment: an impatient second Ctrl-C comes into effect after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = False

    def note(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            signal.raise_signal(signal.SIGINT)


def _end_by_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
