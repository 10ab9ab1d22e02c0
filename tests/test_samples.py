"""The sample models: each builds, and those that make a promise about the generated code keep it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
import torch
from torch._inductor.utils import run_and_get_code

from fusionscope.sample_models import SAMPLES, WANT_GPU, look_for


def code_of(name: str) -> str:
    """The code that Inductor generates for a sample, for one call."""
    torch._dynamo.reset()
    model, inputs, options = import_module(SAMPLES[name]).build()
    with torch._inductor.config.patch(fx_graph_cache=False):  # a cached graph takes no decisions
        _, codes = run_and_get_code(torch.compile(model, **options), *inputs)
    return "\n".join(codes)


@pytest.mark.parametrize("name", SAMPLES.keys() - WANT_GPU)
def test_a_sample_runs_and_says_what_to_look_for(name: str) -> None:
    module = import_module(SAMPLES[name])
    model, inputs, _ = module.build()
    model(*inputs)
    assert look_for(name) == module.LOOK_FOR
    assert module.__doc__ is not None


def test_listing_the_samples_does_not_import_torch() -> None:
    listing = "import sys, fusionscope.sample_models as s; [s.look_for(n) for n in s.SAMPLES]"
    listing += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", listing], check=True)


@pytest.mark.slow
def test_the_parameter_mlp_has_one_kernel_for_relu_and_softmax() -> None:
    code = code_of("mlp_parameters")
    assert code.count("cpp_fused_relu_0(buf") == 3
    assert code.count("cpp_fused__softmax_relu_1(buf") == 1


@pytest.mark.slow
def test_the_inline_mlp_draws_its_weights_in_generated_kernels() -> None:
    assert code_of("mlp_inline").count("randn_cpu(") >= 4


@pytest.mark.slow
def test_the_cheap_producer_is_computed_twice() -> None:
    assert code_of("two_consumers_cheap").count(".sin()") == 2


@pytest.mark.slow
def test_the_expensive_producer_is_computed_once_into_a_buffer() -> None:
    code = code_of("two_consumers_expensive")
    assert code.count(".exp()") == 1
    assert "empty_strided_cpu((1024, 1024)" in code


@pytest.mark.slow
def test_the_chain_is_cut_by_the_fusion_cap(caplog: pytest.LogCaptureFixture) -> None:
    torch._logging.set_logs(fusion=True)
    try:
        code_of("elementwise_chain")
    finally:
        torch._logging.set_logs()
    assert "exceeds max fusion" in caplog.text


@pytest.mark.slow
def test_the_convolutions_run_channels_last() -> None:
    code = code_of("conv_norm_relu")
    assert "buf0 = empty_strided_cpu((8, 32, 56, 56), (100352, 1, 1792, 32)" in code
    assert code.count("= extern_kernels.convolution(") == 2
