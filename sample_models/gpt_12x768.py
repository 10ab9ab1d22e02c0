"""The GPT of this folder at the size of GPT-2 small, twelve layers of width 768: for a GPU."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fusionscope.sample_models import gpt

LOOK_FOR = (
    "At this size the matrix products dominate: compare the time of the library kernels with that of the generated "
    "ones before hoping for more from fusion."
)
BACKWARD = True

CONFIG_12X768 = gpt.GPTConfig(layers=12, heads=12, width=768, tokens=1024, batch=4, vocabulary=50_304)


def build() -> tuple[Callable[..., Any], tuple[Tensor, ...], dict[str, Any]]:
    return gpt.build(CONFIG_12X768)
