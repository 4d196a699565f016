# SPDX-License-Identifier: BSD-3-Clause
"""What tests of convolutions share: shapes, operands, and bfloat16 against sums in float64."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

sums_in_float32 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="without oneDNN's products of bfloat16 cpu's kernels, which run, round at every step",
)


@dataclass(frozen=True)
class Shape:
    images: tuple[int, int, int, int]
    weights: tuple[int, int, int, int]
    stride: int = 1
    padding: int = 1


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / 4


def numbers(*shape: int, seed: int = 17) -> Tensor:
    return normal(*shape, seed=seed).bfloat16()


def last_too(tensor: Tensor, wanted: bool) -> Tensor:
    return tensor.to(memory_format=torch.channels_last) if wanted else tensor


def agree(
    images: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    *,
    atol: float = 2e-6,
    **window: Any,
) -> None:
    """Sums in float64, rounded once; `atol` is what sums in float32 differ from them by."""
    actual = F.conv2d(
        images.to("loom"), weights.to("loom"), bias if bias is None else bias.to("loom"), **window
    )
    expected = F.conv2d(
        images.double(), weights.double(), bias if bias is None else bias.double(), **window
    )
    on_cpu = F.conv2d(images, weights, bias, **window)
    assert actual.dtype == torch.bfloat16
    assert actual.stride() == on_cpu.stride()
    # Half a unit in the last place.
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=2**-8, atol=atol)
