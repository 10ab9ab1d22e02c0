"""Chooses the kernel of scaled_dot_product_attention for a GPU that is not there."""

from __future__ import annotations

import warnings
from typing import Any

from fusionscope.storage.records import DeviceFact

_kept: list[Any] = []


def choose_attention(target: DeviceFact) -> None:
    """Choose the kernel of scaled_dot_product_attention, which torch's C++ does not do for an absent GPU.

    cuDNN first on sm_90 and sm_100, else flash attention, memory-efficient attention where flash cannot, as
    aten/src/ATen/native/transformers/cuda/sdp_utils.cpp orders them.
    """
    import torch

    aten = torch.ops.aten
    cudnn = target.architecture in ("sm_90", "sm_100")

    def attention(
        q: Any,
        k: Any,
        v: Any,
        mask: Any = None,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        heads_fit = q.dim() == 4 and q.shape[-1] % 8 == 0 and q.shape[-1] <= (128 if cudnn else 256)
        grads = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
        half = q.dtype in (torch.float16, torch.bfloat16)
        if enable_gqa or q.dim() != 4 or q.shape[-1] % 4:
            math = aten._scaled_dot_product_attention_math
            return math(q, k, v, mask, dropout, causal, None, scale=scale, enable_gqa=enable_gqa)[0]
        if half and heads_fit and cudnn:
            fused = aten._scaled_dot_product_cudnn_attention
            return fused(q, k, v, mask, grads, dropout, causal, False, scale=scale)[0]
        if half and heads_fit and mask is None:
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout, causal, False, scale=scale)[0]
        return aten._scaled_dot_product_efficient_attention(q, k, v, mask, grads, dropout, causal, scale=scale)[0]

    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    _kept.append(library)  # dropped, it would take its kernels along
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an operator is overridden is the point
        for key in ("AutogradCUDA", "CUDA"):
            library.impl("scaled_dot_product_attention", attention, key)
