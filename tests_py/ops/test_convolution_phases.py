# SPDX-License-Identifier: BSD-3-Clause
"""Dilated 3x3 convolutions of images that are taken apart: values of float64, strides of cpu."""

from typing import Any

import pytest
import torch
from compare import natively
from torch.nn import functional as F  # noqa: N812

# Batch, channels, filters, size, dilation, padding: even phases, odd ones, one direction, no
# padding, more of it.
CASES = [
    (2, 32, 48, (32, 32), (2, 2), (2, 2)),
    (1, 40, 33, (37, 30), (3, 2), (3, 2)),
    (2, 32, 32, (24, 40), (4, 4), (4, 4)),
    (3, 32, 40, (19, 32), (1, 2), (1, 2)),
    (2, 36, 32, (30, 31), (2, 3), (0, 0)),
    (1, 32, 32, (20, 20), (2, 2), (4, 4)),
]
BOUND = {torch.float32: 2e-5, torch.bfloat16: 1.6e-2}


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", BOUND, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_phases_of_dilated_windows(case: Any, dtype: torch.dtype, last: bool) -> None:
    batch, channels, filters, size, dilation, padding = case
    order = torch.channels_last if last else torch.contiguous_format
    x = numbers(batch, channels, *size).to(dtype).contiguous(memory_format=order)
    weight = (numbers(filters, channels, 3, 3, seed=1) / (3 * channels**0.5)).to(dtype)
    bias = numbers(filters, seed=2).to(dtype)

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
        leaves = [each.detach().requires_grad_() for each in (x, weight, bias)]
        y = F.conv2d(*leaves, padding=padding, dilation=dilation)
        seed = numbers(*y.shape, seed=3).to(x.dtype).to(x.device)
        return [y.detach(), *torch.autograd.grad(y, leaves, seed)]

    exact = run(x.double(), weight.double(), bias.double())
    if dtype == torch.bfloat16:  # the gradient that is given is rounded
        y = F.conv2d(x.double(), weight.double(), bias.double(), 1, padding, dilation)
        seed = numbers(*y.shape, seed=3).to(dtype).double()
        leaves = [each.double().requires_grad_() for each in (x, weight, bias)]
        y = F.conv2d(*leaves, padding=padding, dilation=dilation)
        exact = [y.detach(), *torch.autograd.grad(y, leaves, seed)]
    on_cpu = run(x, weight, bias)
    on_loom = natively(run, x.to("loom"), weight.to("loom"), bias.to("loom"))
    for right, theirs, mine in zip(exact, on_cpu, on_loom, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        assert mine.stride() == theirs.stride()
        error = (mine.cpu().double() - right).abs().max() / right.abs().max()
        assert error <= BOUND[dtype]


def test_not_finite_pixels_reach_their_windows_only() -> None:
    x = numbers(1, 32, 32, 32)
    x[0, 3, 10, 11] = float("inf")
    x[0, 5, 20, 2] = float("nan")
    weight = numbers(32, 32, 3, 3, seed=1)
    expected = F.conv2d(x, weight, padding=2, dilation=2)
    actual = natively(F.conv2d, x.to("loom"), weight.to("loom"), padding=2, dilation=2).cpu()
    assert torch.equal(actual.isfinite(), expected.isfinite())
