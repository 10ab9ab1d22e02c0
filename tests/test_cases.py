"""Small models made from public bug reports: recorded each, and what SQL reads of them held against right values.

`pytest tests/test_cases.py --cases DIR` takes the cases of another folder. A case is a file that `fusionscope record`
takes, with NAME, DEVICE (cpu, cuda, any) and EXPECT; `case_keys.py` says what the keys of EXPECT mean in SQL.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import case_keys
import duckdb
import pytest
import torch

from fusionscope.storage.library import Library

TIMEOUT_S = 600


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test per case file."""
    files = sorted(metafunc.config.getoption("--cases").resolve().glob("c[0-9]*.py"))
    assert files, "the folder of --cases holds no case: files whose name is c, a number, and what it is about"
    metafunc.parametrize("case", [pytest.param(file, id=file.stem, marks=_marks(file)) for file in files])


def _marks(file: Path) -> list[pytest.MarkDecorator]:
    needs_gpu = constants(file)["DEVICE"] == "cuda"
    without = pytest.mark.skipif(needs_gpu and not torch.cuda.is_available(), reason="a case for CUDA")
    return [pytest.mark.slow, without, *([pytest.mark.gpu] if needs_gpu else [])]


def constants(file: Path) -> dict[str, Any]:
    """What a case assigns to names, without running the rest of it: some cases register operators."""
    found: dict[str, Any] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign):
            with suppress(NameError):  # computed from what is not a constant
                value = eval(compile(ast.Expression(node.value), str(file), "eval"), {"__builtins__": {}}, found)
                found |= {target.id: value for target in node.targets if isinstance(target, ast.Name)}
    return found


def computed_by_extra(file: Path) -> set[str]:
    """The keys of the dicts in a case's `extra()`."""
    functions = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]
    dicts = [node for f in functions if f.name == "extra" for node in ast.walk(f) if isinstance(node, ast.Dict)]
    return {key.value for node in dicts for key in node.keys if isinstance(key, ast.Constant)}


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of compiled kernels for all cases; decisions are never taken from a cache."""
    return tmp_path_factory.mktemp("kernels")


def test_the_library_says_what_the_case_expects(case: Path, tmp_path: Path, kernel_cache: Path) -> None:
    expected, extra = constants(case)["EXPECT"], computed_by_extra(case)
    compared = {key: value for key, value in expected.items() if not case_keys.is_listed(key, extra)}
    _record(case, tmp_path, kernel_cache, measured=any(key.startswith("eager_peak_bytes") for key in compared))
    got = Library(tmp_path).ask(_read, compared)
    complaints = [case_keys.complaint(key, value, got[key]) for key, value in compared.items()]
    assert [complaint for complaint in complaints if complaint] == []


def _record(case: Path, store: Path, kernel_cache: Path, *, measured: bool) -> None:
    command = [
        sys.executable,
        "-m",
        "fusionscope.collector.cli",
        "record",
        str(case),
        "--strict",
        "--store",
        str(store),
    ]
    environment = os.environ | {
        "OMP_NUM_THREADS": "2",  # what the right values were measured with
        "TORCHINDUCTOR_CACHE_DIR": str(kernel_cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    done = subprocess.run(
        [*command, *([] if measured else ["--no-measure"])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def _read(con: duckdb.DuckDBPyConnection, expected: dict[str, Any]) -> dict[str, Any]:
    runs = [run for (run,) in con.execute("SELECT run_id FROM runs ORDER BY rank").fetchall()]
    return {key: case_keys.value_of(con, runs, key) for key in expected}
