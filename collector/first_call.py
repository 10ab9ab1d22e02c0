"""The first call of a compiled model: in a process of its own, with empty caches and without the recorder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fusionscope.collector.model_file import configured, default_device, load
from fusionscope.storage.records import HookStatus, Measurement

_METHOD = (
    "wall time of torch.compile and the first call, after an eager one, in a process of its own: cache folders empty, "
    "recorder off"
)
_BREAK_EVEN = "(first call - compiled) / (eager - compiled): calls after which compiling has taken less time than eager"


def first_calls(
    target: str, device: str | None, kwargs: Mapping[str, Mapping[str, Any]], latency_us: Mapping[str, float]
) -> Iterator[Measurement | HookStatus]:
    """Seconds of each variant's first call, and the calls until it pays; `kwargs` are what torch.compile is given.

    A variant that is not faster than eager never pays, so it has no such number.
    """
    for variant, given in kwargs.items():
        seconds = _in_process(target, device, given)
        if seconds is None:
            reason = f"{variant}: the process that was to measure the first call failed"
            yield HookStatus(hook="first_call", state="unavailable", reason=reason)
            continue
        yield Measurement(variant=variant, metric="first_call_s", median=seconds, unit="s", method=_METHOD)
        eager_us, own_us = latency_us.get("eager", 0.0), latency_us.get(variant)
        if own_us is not None and own_us < eager_us:
            calls = (seconds * 1e6 - own_us) / (eager_us - own_us)
            yield Measurement(
                variant=variant, metric="break_even_calls", median=calls, unit="count", method=_BREAK_EVEN
            )


def _in_process(target: str, device: str | None, kwargs: Mapping[str, Any]) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "seconds"
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "TRITON_CACHE_DIR": f"{folder}/triton"}
        asked = json.dumps({"target": target, "device": device, "kwargs": dict(kwargs)})
        command = [sys.executable, "-m", __name__, str(result), asked]
        subprocess.run(command, env=os.environ | caches, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        return float(result.read_text()) if result.exists() else None


def _measure(target: str, device: str | None, kwargs: dict[str, Any]) -> float:
    import torch

    from fusionscope.collector.measure.step import device_of, loss_of, synchronize

    model = load(target)
    with configured(model.config), default_device(device):
        torch.manual_seed(0)
        built = model.build()

        def call(callee: Any) -> None:
            output = callee(*built.inputs)
            if model.backward:
                loss_of(output).backward()  # type: ignore[no-untyped-call]
            synchronize(device_of(output, built.inputs, built.model))

        call(built.model)
        begun = time.perf_counter()
        call(torch.compile(built.model, **((built.compile_kwargs or {}) | kwargs)))
        return time.perf_counter() - begun


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(_measure(**json.loads(sys.argv[2]))))
