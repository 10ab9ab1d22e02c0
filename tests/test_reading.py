"""Plain values are read right out of torch's objects."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fusionscope.collector import reading


def test_a_source_line_is_the_innermost_one_that_is_not_torchs_own() -> None:
    inside = Path(torch.__file__).parent / "utils" / "_device.py"
    trace = f'  File "{__file__}", line 1, in forward\n    x\n  File "{inside}", line 116, in wrapper\n    y\n'
    file, line, text = reading.source_of(trace)
    assert (file, line) == (__file__, 1)
    assert text == '"""Plain values are read right out of torch\'s objects."""'


def test_an_op_without_a_stack_has_no_source() -> None:
    assert reading.source_of(None) == (None, None, None)


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("L['self'].layers.0", "layers.0"),
        ("G['net'].layers.0", "net.layers.0"),
        ("L['self']", None),
        ("G['net']", "net"),
    ],
)
def test_a_module_path_starts_below_what_is_compiled(path: str, module: str | None) -> None:
    node = torch.fx.Graph().placeholder("x")
    node.meta["nn_module_stack"] = {"key": (path, torch.nn.Linear)}
    assert reading.module_path(node) == module
