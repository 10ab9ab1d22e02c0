"""Makes this process take a GPU for present: torch, Inductor and Triton then decide as they would on it.

Nothing is restored: this is for a process of its own (`fusionscope.collector.targets.child`). Tensors are FakeTensors,
which have shapes but no memory. Inductor, Triton and ptxas run unchanged; what is replaced is only what asks the driver
(driver.py), and what would benchmark, launch or read memory (inductor.py).
"""

from __future__ import annotations

import types
import warnings
from typing import Any

from fusionscope.collector.targets import driver, inductor, stand_in
from fusionscope.collector.targets.attention import choose_attention
from fusionscope.collector.targets.replacing import replace
from fusionscope.storage.records import DeviceFact, HookStatus

_present: list[DeviceFact] = []


def stand_in_for(target: DeviceFact) -> Any:
    """Take `target` for present; returns the FakeTensorMode to run user code in. Raises StandInFailed."""
    from torch._subclasses import fake_tensor

    stand_in.load()
    driver.answer_for(target)
    replace(fake_tensor, init_gpu_context=lambda device: None)  # a build for CUDA would look for the GPU
    replace(fake_tensor.FakeTensorMode, avoid_device_init=property(lambda mode: True))
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    inductor.compile_for(target, mode)
    choose_attention(target)
    _conversions()
    _warned(mode)
    _present.append(target)
    return mode


def present() -> DeviceFact | None:
    """The GPU that this process takes for present, or None."""
    return _present[0] if _present else None


def undecided() -> list[HookStatus]:
    """What only the GPU itself can decide or tell, each with the reason, as rows of the coverage statement."""
    name = _present[0].name
    absent = f"there is no {name} here, and only timing on it can tell"
    reasons = {
        "measure": f"{absent} how fast it is",
        "autotune": f"{absent} which of a kernel's configurations wins: each is recorded, none is chosen",
        "library_kernels": f"which kernel a library would pick on the {name}, and what it takes, is known only there",
    }
    if count := inductor.met["pad_mm"]:
        reasons["pad_mm"] = f"{absent} whether padding pays: left unpadded {count} times"
    if count := inductor.met["templates"]:
        reasons["templates"] = (
            f"{absent} whether a template beats the library: the library stands, {count} times, and what a template "
            "would take in (epilogues, prologues) is undecided with it"
        )
    return [HookStatus(hook=hook, state="unavailable", reason=reason) for hook, reason in reasons.items()]


def _conversions() -> None:
    """Let `module.to(…)` convert FakeTensors in place: it swaps them, which weak references to them forbid."""
    import torch.utils

    replace(torch.utils, weakref=types.SimpleNamespace(getweakrefs=lambda tensor: []))


def _warned(mode: Any) -> None:
    """Have torch give its one warning of a FakeTensor's address now, unheard: its runtime asks for addresses."""
    import torch

    with mode, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.empty(1, device="cuda").untyped_storage().data_ptr()
