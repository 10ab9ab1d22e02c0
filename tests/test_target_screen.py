"""The Kernels page of a run for a GPU that is not here: figures where they are known, reasons where they are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_graph import inductor_graph
from example_run import example_run
from streamlit.testing.v1 import AppTest

from fusionscope.collector.targets.devices import DEVICES
from fusionscope.storage import records as r
from fusionscope.storage.library import Library
from fusionscope.storage.queries import kernels
from fusionscope.storage.queries._rows import records_of
from fusionscope.storage.spool import Spool

ROOT = Path(__file__).resolve().parent.parent
RUN_ID = "20260102-050607-f6a7b8"
GRAPH = "0/0.inference"
SOFTMAX = f"{GRAPH}/cpp_fused__softmax_1"  # the example's kernels, taken for Triton's
RELU = f"{GRAPH}/cpp_fused_relu_0"


def config(
    kernel_id: str, block: int, registers: int, occupancy: float, chosen: bool | None, spills: int = 0
) -> r.KernelConfig:
    """A configuration of one of the example's kernels."""
    return r.KernelConfig(
        kernel_id=kernel_id,
        config=f"XBLOCK={block} num_warps=8 num_stages=1",
        num_warps=8,
        num_stages=1,
        grid="64, 1, 1",
        registers=registers,
        n_spills=spills // 8,
        spill_bytes=spills,
        shared_bytes=64,
        static_shared_bytes=0,
        occupancy=occupancy,
        occupancy_limit="registers",
        chosen=chosen,
        origin="heuristics",
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run for an H200."""
    store = tmp_path_factory.mktemp("target") / "store"
    run = example_run(RUN_ID, "mlp", device_kind="target", device_name="H200")
    reasons = {"measure": "there is no H200 here", "autotune": "only timing tells which configuration wins"}
    absent = [r.HookStatus(hook=hook, state="unavailable", reason=reason) for hook, reason in reasons.items()]
    configs = [
        config(SOFTMAX, 1, 32, 1.0, None),
        config(SOFTMAX, 32, 255, 0.125, None, spills=5944),
        config(RELU, 1024, 24, 1.0, True),
    ]
    code = [
        r.KernelCode(kernel_id=SOFTMAX, config=c.config, kind=kind, text=f"{kind} of {c.config}")
        for c in configs[:2]
        for kind in ("ttir", "ptx", "sass")
    ]
    spool = Spool.create(store, run)
    spool.append([DEVICES["H200"], *absent, *inductor_graph("0/0", batch=64, position=0), *configs, *code])
    spool.publish(run)
    Library(store).import_inbox()
    return store


def drawn(store: Path, screen: str, monkeypatch: pytest.MonkeyPatch, **params: str) -> AppTest:
    """The app on one page of the run."""
    monkeypatch.setenv("FUSIONSCOPE_STORE", str(store))
    app = AppTest.from_file(str(ROOT / "app" / "streamlit_app.py"), default_timeout=60)
    app.query_params["run"] = RUN_ID
    app.run()
    for name, value in params.items():
        app.query_params[name] = value
    return app.switch_page(f"screens/{screen}").run()


def texts(app: AppTest) -> str:
    """All plain text on the page."""
    return "\n".join(str(text.value) for text in app.text)


def test_an_undecided_kernel_shows_its_configuration_of_lowest_occupancy(store: Path) -> None:
    rows = {row.kernel_id: row for row in Library(store).ask(kernels.kernels, RUN_ID)}
    softmax, relu = rows[SOFTMAX], rows[RELU]
    assert (softmax.configs, softmax.decided, softmax.registers, softmax.spill_bytes) == (2, False, 255, 5944)
    assert (relu.configs, relu.decided, relu.registers, relu.occupancy) == (1, True, 24, 1.0)
    assert rows[f"{GRAPH}/extern_kernels.addmm"].configs is None


@pytest.mark.parametrize("record", [r.DeviceFact, r.KernelConfig, r.KernelCode])
def test_an_exported_target_run_is_the_same_elsewhere(store: Path, tmp_path: Path, record: type) -> None:
    here, there = Library(store), Library(tmp_path / "store")
    there.import_path(here.export_run(RUN_ID, tmp_path / "mlp.fusionscope"))
    rows = here.ask(records_of, record, RUN_ID)
    assert rows
    assert there.ask(records_of, record, RUN_ID) == rows


def test_the_kernels_page_shows_registers_and_says_what_is_undecided(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = drawn(store, "kernels.py", monkeypatch, kernel=SOFTMAX)
    assert not app.exception
    assert {"registers", "spills", "occupancy", "limited by", "configurations"} <= set(app.dataframe[0].value.columns)
    assert "2, undecided" in set(app.dataframe[0].value["configurations"])
    shown = texts(app)
    assert "Undecided: only timing tells which configuration wins" in shown
    assert "Times are not recorded: there is no H200 here" in shown


TABS = ["Source", "Operators", "Decisions", "Configurations", "PTX", "SASS", "Calls"]


def test_ptx_and_sass_stand_in_tabs_of_their_own(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "kernels.py", monkeypatch, kernel=SOFTMAX)
    assert [tab.label for tab in app.tabs] == TABS
    first = "XBLOCK=1 num_warps=8 num_stages=1"
    assert {f"ptx of {first}", f"sass of {first}"} <= {str(code.value) for code in app.code}


def test_a_kernel_without_configurations_has_no_tab_for_them(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "kernels.py", monkeypatch, kernel=f"{GRAPH}/extern_kernels.addmm")
    assert [tab.label for tab in app.tabs] == ["Source", "Operators", "Calls"]


def test_nothing_is_compared_on_a_gpu_that_is_not_here(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = drawn(store, "comparison.py", monkeypatch)
    assert not app.exception
    assert "not recorded: there is no H200 here" in texts(app)
    assert "H200 (not here)" in texts(app)
