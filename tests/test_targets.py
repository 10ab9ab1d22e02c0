"""A model recorded for a GPU that is not here: what it decides, what its binaries take, and what nobody can know."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from fusionscope.collector import targets
from fusionscope.collector.cli import main
from fusionscope.collector.targets.presence import present
from fusionscope.storage.library import Library
from fusionscope.storage.queries import autotune
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.records import (
    DeviceFact,
    HookStatus,
    Kernel,
    KernelCode,
    KernelConfig,
    KernelTiming,
    Measurement,
    MemoryPoint,
    Run,
)

MODELS = {
    "rows": """
import torch

def build():
    return (lambda x: torch.softmax(x, -1)), (torch.randn(256, 65536),), {}
""",
    "norms": """
import torch
import torch.nn.functional as F

BACKWARD = True

class Norms(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(128), torch.nn.LayerNorm(128)

    def forward(self, x, residual):
        return F.gelu(self.second(F.gelu(self.first(x + residual)) + x))

def build():
    return Norms().to("cuda"), (torch.randn(64, 128, requires_grad=True), torch.randn(64, 128)), {}
""",
    "reads": """
import torch

def build():
    return (lambda x: x * 2 if x.sum().item() > 0 else x), (torch.randn(64),), {}
""",
    "padded": """
import torch

def build():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 100)).bfloat16()
    return model, (torch.randn(64, 256, dtype=torch.bfloat16),), {}
""",
    "contest": """
import itertools
import torch
from torch._inductor import config
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime import triton_heuristics

def build():
    return (lambda x: torch.nn.functional.gelu(x) * 2), (torch.randn(1024, 4096),), {}

def drive(compiled, inputs):
    with config.patch(coordinate_descent_tuning=True):
        compiled(*inputs)
    times = itertools.cycle([0.004, 0.003, 0.0025, 0.005])
    triton_heuristics.benchmarker.benchmark = lambda *arguments, **keywords: next(times)
    for module in [module for module in PyCodeCache.modules if hasattr(module, "call")]:
        for tuner in vars(module).values():
            if isinstance(tuner, triton_heuristics.CachingAutotuner):
                tuner.autotune_to_one_config()
                tuner.coordinate_descent_tuning(tuner.launchers[0])
""",
}
R = TypeVar("R")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
pytestmark = pytest.mark.slow


class Recorded:
    """A run of one of the models for a target."""

    def __init__(self, store: Path, run_id: str) -> None:
        self.store, self.run_id = store, run_id

    def all_of(self, record: type[R]) -> list[R]:
        """Its records of one kind."""
        return Library(self.store).ask(records_of, record, self.run_id)


Record = Callable[..., "Recorded"]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Record a model for a target, once for the session."""
    folder = tmp_path_factory.mktemp("targets")
    done: dict[tuple[str, ...], Recorded] = {}

    def record(model: str, target: str, *options: str) -> Recorded:
        key = (model, target, *options)
        if key not in done:
            file, store = folder / f"{model}.py", folder / "_".join(key)
            file.write_text(MODELS[model])
            assert main(["record", str(file), "--target", target, "--store", str(store), "--strict", *options]) == 0
            (run,) = Library(store).ask(library_runs)
            done[key] = Recorded(store, run.run_id)
        return done[key]

    return record


def names(run: Recorded) -> list[str]:
    """The run's Triton kernels."""
    return [kernel.name for kernel in run.all_of(Kernel) if kernel.backend == "triton"]


def test_a_long_softmax_is_one_kernel_on_an_a100_and_three_on_an_h100(recorded: Record) -> None:
    assert len(names(recorded("rows", "A100"))) == 1
    assert len(names(recorded("rows", "H100"))) == 3


def test_the_run_says_for_which_gpu_it_is_and_that_it_is_not_here(recorded: Record) -> None:
    run = recorded("rows", "H100")
    (row,) = run.all_of(Run)
    (device,) = run.all_of(DeviceFact)
    assert (row.status, row.device_kind, row.device_name, row.cuda_version) == ("complete", "target", "H100", None)
    assert (device.name, device.architecture, device.multiprocessors) == ("H100", "sm_90", 132)


def test_the_same_ledger_holds_the_plan_and_the_source(recorded: Record) -> None:
    run = recorded("rows", "H100")
    assert {point.basis for point in run.all_of(MemoryPoint)} == {"estimate", "plan"}
    assert all("@triton.jit" in (kernel.source or "") for kernel in run.all_of(Kernel))


def test_grids_are_those_of_the_launch(recorded: Record) -> None:
    (config,) = recorded("rows", "A100").all_of(KernelConfig)
    assert (config.grid, config.chosen) == ("256, 1, 1", True)


def assembled(ptx: str, folder: Path) -> tuple[int, int, int]:
    """Registers and spill bytes that `ptxas -v` tells, and REG that `cuobjdump -res-usage` tells, for the same PTX."""
    from triton import knobs

    source, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    # Triton's own flags since 3.7 (triton/backends/nvidia/compiler.py, make_cubin)
    flags = ["-lineinfo", "-v", "--regAllocOptLevel=2", "--gpu-name=sm_90a"]
    command = [knobs.nvidia.ptxas.path, *flags, str(source), "-o", str(cubin)]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    usage = [knobs.nvidia.cuobjdump.path, "-res-usage", str(cubin)]
    told = subprocess.run(usage, capture_output=True, text=True, check=True).stdout
    spills, used, reg = SPILLS.search(log), USED.search(log), re.search(r"REG:(\d+)", told)
    assert spills
    assert used
    assert reg
    return int(used[1]), int(spills[1]) + int(spills[2]), int(reg[1])


def test_registers_and_spills_are_what_nvidias_tools_say_of_the_same_ptx(recorded: Record, tmp_path: Path) -> None:
    run = recorded("norms", "H200")
    ptx = {(code.kernel_id, code.config): code.text for code in run.all_of(KernelCode) if code.kind == "ptx"}
    configs = run.all_of(KernelConfig)
    assert len(ptx) == len(configs) >= 8
    for config in configs:
        registers, spilled, reg = assembled(ptx[config.kernel_id, config.config], tmp_path)
        assert (config.registers, config.registers, config.spill_bytes) == (registers, reg, spilled), config
    assert any(config.spill_bytes for config in configs)


def test_spills_and_occupancy_of_a_fat_configuration_are_told(recorded: Record) -> None:
    worst = max(recorded("norms", "H200").all_of(KernelConfig), key=lambda config: config.spill_bytes or 0)
    assert (worst.registers, worst.occupancy, worst.occupancy_limit) == (255, 0.125, "registers")
    assert worst.n_spills
    assert worst.chosen is None


def test_sass_is_kept_where_the_disassembler_is(recorded: Record) -> None:
    kinds = {code.kind for code in recorded("norms", "H200").all_of(KernelCode)}
    assert kinds == {"ttir", "ptx", "sass"}


def test_what_only_the_gpu_can_tell_is_said_to_be_unknown(recorded: Record) -> None:
    run = recorded("rows", "MI300X")
    reasons = {status.hook: status.reason for status in run.all_of(HookStatus) if status.state == "unavailable"}
    assert set(reasons) == {"measure", "autotune", "library_kernels"}
    assert all("MI300X" in (reason or "") for reason in reasons.values())
    configs = run.all_of(KernelConfig)
    assert {config.chosen for config in configs} == {True, None}
    assert {(config.spill_bytes, config.time_us) for config in configs} == {(None, None)}  # ptxas is NVIDIA's
    assert run.all_of(Measurement) == []
    assert run.all_of(KernelTiming) == []


def test_padding_and_templates_are_left_undecided(recorded: Record, capfd: pytest.CaptureFixture[str]) -> None:
    run = recorded("padded", "H200", "--mode", "max-autotune")
    reasons = {status.hook: status.reason for status in run.all_of(HookStatus) if status.state == "unavailable"}
    assert "left unpadded" in (reasons["pad_mm"] or "")
    assert "the library stands, 2 times" in (reasons["templates"] or "")
    held = Library(run.store).ask(autotune.gemm_contests, run.run_id)
    assert [(contest.op, contest.decided, contest.timed) for contest in held] == [("addmm", False, 0)] * 2
    assert all(contest.candidates > 10 for contest in held)
    assert " ms " not in capfd.readouterr().err  # torch tells no times that are none


def test_torchs_contest_and_descent_leave_every_time_and_one_winner(recorded: Record) -> None:
    """Only the clock is made up: 4 and 3 µs for what was listed, 2.5, 5, 4 and 3 for what the descent tries."""
    run = recorded("contest", "H200")
    (kernel,) = run.all_of(Kernel)
    tried = Library(run.store).ask(autotune.config_candidates, run.run_id, kernel.kernel_id)
    assert [row.time_us for row in tried] == [2.5, 3, 3, 4, 4, 5]
    assert [row.chosen for row in tried] == [True] + [False] * 5
    assert [row.origin for row in tried].count("coordinate_descent") == 4
    assert (tried[0].origin, tried[0].slower_than_winner, tried[-1].slower_than_winner) == ("coordinate_descent", 1, 2)
    assert all(row.registers and row.occupancy for row in tried)
    assert {code.config for code in run.all_of(KernelCode)} == {tried[0].config}


def test_code_that_reads_values_is_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reads.py").write_text(MODELS["reads"])
    assert main(["record", "reads.py", "--target", "H200", "--store", str(tmp_path / "store")]) == 3
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("fusionscope: reads failed: the code reads a value of a tensor")
    assert "on the H200" in last


def test_the_callers_process_is_not_touched(recorded: Record) -> None:
    recorded("rows", "A100")
    assert present() is None
    assert torch.cuda.is_available() == (torch.version.cuda is not None and torch.cuda.device_count() > 0)


@pytest.mark.parametrize(
    ("without", "sentence"),
    [
        ("target", "there is no target 'H300': give one of A100, H100, H200, B200, MI300X"),
        ("g++", "a target needs g++, which is not installed: on Debian, apt-get install g++"),
        ("triton", "a target needs Triton, which is not installed: pip install triton"),
        ("linux", "a target needs Linux, where Triton has its compilers: use a container"),
    ],
)
def test_what_is_missing_is_one_sentence(
    without: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    which, find = shutil.which, targets.find_spec
    if without == "g++":
        monkeypatch.setattr(targets.shutil, "which", lambda name: None if name == "g++" else which(name))
    elif without == "triton":
        monkeypatch.setattr(targets, "find_spec", lambda name: None if name == "triton" else find(name))
    elif without == "linux":
        monkeypatch.setattr(targets.sys, "platform", "darwin")
    target = "H300" if without == "target" else "H200"
    assert main(["record", "mlp_parameters", "--target", target]) == 2
    assert capsys.readouterr().err == f"fusionscope: {sentence}\n"


def test_a_target_is_a_device_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "mlp_parameters", "--target", "H200", "--device", "cuda"]) == 2
    assert "give --device or --target" in capsys.readouterr().err
