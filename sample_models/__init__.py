"""Models worth looking at: each is one file with a `build()`, and a sentence that says what to look for."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

SAMPLES: dict[str, str] = {
    name: f"{__name__}.{name}"
    for name in (
        "mlp_inline",
        "mlp_parameters",
        "transformer_step",
        "two_consumers_cheap",
        "two_consumers_expensive",
        "elementwise_chain",
        "conv_norm_relu",
        "breaks_and_recompiles",
        "gpt",
        "gpt_12x768",
    )
}
"""Name -> module. The modules import torch, so they are named here and imported only when one is asked for."""

WANT_GPU: frozenset[str] = frozenset({"gpt_12x768"})
"""Samples that take minutes on a CPU."""

RECORDED_ON_GPU: tuple[Path, ...] = tuple(sorted((Path(__file__).parent / "h200").glob("*.zip")))
"""Bundles of runs on an NVIDIA H200, as `fusionscope import` takes them."""


def look_for(name: str) -> str:
    """What to look for in a sample: its LOOK_FOR, read from the source so that torch is not imported.

    Raises KeyError for a name that is no sample.
    """
    spec = find_spec(SAMPLES[name])
    assert spec is not None
    assert spec.origin is not None
    return _constant(Path(spec.origin).read_text(encoding="utf-8"), "LOOK_FOR")


def _constant(source: str, name: str) -> str:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            return str(ast.literal_eval(node.value))
    raise LookupError(f"no constant {name}")
