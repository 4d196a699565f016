# SPDX-License-Identifier: BSD-3-Clause
"""Sums and extrema of many short rows, whose columns are combined."""

import pytest
import torch
from compare import agrees, gradients_agree


def numbers(*shape, dtype=torch.float32):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5))
    return (values * 3).to(dtype) if dtype is not torch.float32 else values


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("columns", [2, 3, 6, 7])
def test_values(dtype, columns):
    x = numbers(4000, columns, dtype=dtype)
    agrees(lambda x: x.sum(1), x)
    agrees(lambda x: x.view(2000, 2, columns).sum((-2, -1), keepdim=True), x)
    agrees(lambda x: x.view(10, 400, columns).sum(-1).t(), x)
    agrees(lambda x: x.sum(-1, dtype=torch.float32), x)
    if dtype is not torch.bool:
        agrees(lambda x: x.amax(1), x)
        agrees(lambda x: x.amin(-1, keepdim=True), x)
    if dtype.is_floating_point:
        agrees(lambda x: x.mean(1), x)
        x[7, 1], x[9, 0] = float("nan"), float("inf")
        agrees(lambda x: torch.stack([x.sum(1), x.amax(1), x.amin(1)]), x)


def test_of_what_is_not_written_yet():
    x, y = numbers(4000, 3), numbers(4000, 3)
    agrees(lambda x, y: ((x - y) ** 2).sum(-1).sqrt(), x, y)
    agrees(lambda x, y: (x * y).amax(-1, keepdim=True) + y, x, y)
    agrees(lambda x: x.mul_(2).sum(-1), x)
    gradients_agree(lambda x, y: (x * y).sum(-1).exp(), x, y)


def test_given_results():
    def into(make):
        def call(x):
            result = make(x)
            torch.sum(x, -1, out=result)
            return result, x

        return call

    x = numbers(4000, 3)
    agrees(into(lambda x: torch.empty(8000, device=x.device)[::2]), x)
    agrees(into(lambda x: torch.empty(4000, 1, device=x.device)[:, 0]), x)
    agrees(into(lambda x: torch.empty(4000, dtype=torch.float64, device=x.device)), x)
    agrees(lambda x: torch.sum(x.view(20, 200, 3), 2, out=x.new_empty(200, 20).t()), x)
