"""A model recorded for a GPU that is not here: what it decides, what its binaries take, and what nobody can know."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from fusionscope.collector import targets
from fusionscope.collector.cli import main
from fusionscope.collector.targets import stand_in
from fusionscope.collector.targets.presence import present
from fusionscope.storage.library import Library
from fusionscope.storage.queries import autotune
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.queries.kernel_match import kernel_matches
from fusionscope.storage.queries.runs import library_runs
from fusionscope.storage.records import (
    DeviceFact,
    GraphNode,
    HookStatus,
    IrNode,
    Kernel,
    KernelCode,
    KernelConfig,
    KernelTiming,
    Measurement,
    MemoryPoint,
    Run,
)

MODELS = {
    "target_programs": Path(__file__).with_name("target_programs.py").read_text(),
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
    "flex": """
import torch
from torch.nn.attention.flex_attention import flex_attention

def build():
    return (lambda x: flex_attention(x, x, x)), (torch.randn(2, 4, 256, 64, dtype=torch.float16),), {}
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


def test_two_gpus_beside_each_other_show_one_softmax_kernel_against_three(recorded: Record, tmp_path: Path) -> None:
    both, runs = Library(tmp_path / "store"), [recorded("rows", gpu) for gpu in ("A100", "H100")]
    for run in runs:
        both.import_path(Library(run.store).export_run(run.run_id, tmp_path / f"{run.run_id}.fusionscope"))
    (row,) = both.ask(kernel_matches, runs[0].run_id, runs[1].run_id)
    assert (len(row.a), len(row.b), row.matched_by) == (1, 3, "operations")
    assert "kernels" in row.differs
    assert {(op.file, op.line) for op in row.ops if op.file} == {("rows.py", 5)}


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


def test_a_template_passes_its_grid_as_arguments(recorded: Record) -> None:
    run = recorded("flex", "H200")
    grids = {config.kernel_id: config.grid for config in run.all_of(KernelConfig)}
    (template,) = (kernel for kernel in run.all_of(Kernel) if kernel.name.startswith("triton_tem_"))
    assert grids[template.kernel_id] == "2, 2, 4"  # 256 queries in blocks of 128, 2 of a batch, 4 heads


def test_an_operator_of_higher_order_has_its_name(recorded: Record) -> None:
    assert "flex_attention" in {node.original for node in recorded("flex", "H200").all_of(GraphNode)}


@dataclass(frozen=True)
class Told:
    """What NVIDIA's tools and Triton tell of one kernel in one configuration."""

    used: int  # registers, ptxas -v
    reg: int  # cuobjdump -res-usage
    spill_bytes: int  # stores and loads, ptxas -v
    stack: int  # bytes of local memory, cuobjdump -res-usage
    shared: int  # metadata that Triton keeps beside the kernel


def assembled(ptx: str, name: str, folder: Path) -> Told:
    """Assemble the PTX again, by the tools that come with Triton, and find it in Triton's cache."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    from triton import knobs

    source = folder / f"{hashlib.sha256(ptx.encode()).hexdigest()}.ptx"
    source.write_text(ptx)
    # Triton's own flags since 3.7 (triton/backends/nvidia/compiler.py, make_cubin)
    flags = ["-lineinfo", "-v", "--regAllocOptLevel=2", "--gpu-name=sm_90a"]
    command = [knobs.nvidia.ptxas.path, *flags, str(source), "-o", str(source.with_suffix(".cubin"))]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    usage = [knobs.nvidia.cuobjdump.path, "-res-usage", str(source.with_suffix(".cubin"))]
    told = subprocess.run(usage, capture_output=True, text=True, check=True).stdout
    stores, loads = number(r"(\d+) bytes spill stores", log), number(r"(\d+) bytes spill loads", log)
    kept = next(text for text in Path(cache_dir()).glob(f"triton/*/*/{name}.ptx") if text.read_text() == ptx)
    shared = json.loads(kept.with_suffix(".json").read_text())["shared"]
    used, reg, stack = number(r"Used (\d+) registers", log), number(r"REG:(\d+)", told), number(r"STACK:(\d+)", told)
    return Told(used, reg, stores + loads, stack, shared)


def number(pattern: str, text: str) -> int:
    """The number that the pattern finds."""
    found = re.search(pattern, text)
    assert found, (pattern, text)
    return int(found[1])


@pytest.mark.parametrize(("model", "least"), [("norms", 8), ("target_programs", 40)])
def test_registers_spills_and_shared_memory_are_what_nvidias_tools_and_triton_say(
    recorded: Record, model: str, least: int, tmp_path: Path
) -> None:
    run = recorded(model, "H200")
    ptx = {(code.kernel_id, code.config): code.text for code in run.all_of(KernelCode) if code.kind == "ptx"}
    configs = run.all_of(KernelConfig)
    assert {kernel_id for kernel_id, _ in ptx} == {k.kernel_id for k in run.all_of(Kernel) if k.backend == "triton"}
    assert len(ptx) == len(configs) >= least

    def told(config: KernelConfig) -> Told:
        return assembled(ptx[config.kernel_id, config.config], config.kernel_id.rpartition("/")[2], tmp_path)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for config, tools in zip(configs, pool.map(told, configs), strict=True):
            assert (config.registers, config.registers) == (tools.used, tools.reg), config
            assert (config.spill_bytes, config.n_spills) == (tools.spill_bytes, tools.stack // 4), config
            assert config.shared_bytes == tools.shared, config
    directions = {kernel_id.rpartition("/")[0].rpartition(".")[2] for kernel_id, _ in ptx}
    assert directions == {"forward", "backward"}


def test_spills_and_occupancy_of_a_fat_configuration_are_told(recorded: Record) -> None:
    worst = max(recorded("norms", "H200").all_of(KernelConfig), key=lambda config: config.spill_bytes or 0)
    assert (worst.registers, worst.occupancy, worst.occupancy_limit) == (255, 0.125, "registers")
    assert worst.n_spills
    assert worst.chosen is None


def test_what_an_operation_costs_is_found_by_compiling_without_it(
    recorded: Record, capfd: pytest.CaptureFixture[str]
) -> None:
    run = recorded("rows", "A100")
    (kernel,) = [kernel for kernel in run.all_of(Kernel) if kernel.backend == "triton"]
    (config,) = run.all_of(KernelConfig)
    assert main(["registers", run.run_id, kernel.name, "--store", str(run.store), "--json"]) == 0
    whole, *without = json.loads(capfd.readouterr().out)
    assert (whole["without"], whole["kernels"]) == (None, 1)
    assert (whole["registers"], whole["spill_bytes"]) == (config.registers, config.spill_bytes)
    assert {found["without"] for found in without} == {node.ir_node for node in run.all_of(IrNode)}
    assert all(found["kernels"] > 1 and found["moved"] > whole["moved"] for found in without)


def test_registers_asks_for_a_fused_kernel_of_a_target_run(
    recorded: Record, example_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded("rows", "A100")
    assert main(["registers", run.run_id, "nothing", "--store", str(run.store)]) == 2
    assert "there is no Triton kernel 'nothing': give one of 0/0.inference/triton_" in capsys.readouterr().err
    assert main(["registers", "mlp", "cpp_fused_relu_0", "--store", str(example_store)]) == 2
    assert "was not recorded by `fusionscope record … --target GPU`" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("compiler", "sentence"),
    [
        ("/nowhere/g++", "the C++ compiler /nowhere/g++ could not be run: No such file or directory"),
        ("false", "false could not build the stand-in for the GPU: no message"),
    ],
)
def test_a_compiler_that_does_not_work_is_one_sentence(
    compiler: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with pytest.raises(stand_in.StandInFailed, match=f"^{re.escape(sentence)}$"):
        stand_in.load()


def test_a_target_is_a_device_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "mlp_parameters", "--target", "H200", "--device", "cuda"]) == 2
    assert "give --device or --target" in capsys.readouterr().err
