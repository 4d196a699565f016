# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions that oneDNN runs in parts, and signals of one long row: cpu's values and strides,
the same on any number of cores."""

import pytest
import torch
from split_checks import all_cores
from torch.nn import functional as F  # noqa: N812

__all__ = ["all_cores"]  # a fixture

convolve = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
turned = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def both_ways(function, images, weights, bias, device):
    own = [each.to(device).requires_grad_() for each in (images, weights, bias)]
    result = function(*own)
    torch.manual_seed(3)
    grad = torch.randn(result.shape).to(result.dtype).to(device)
    return [result.detach(), *torch.autograd.grad(result, own, grad)]


def check(function, images, weights, bias, dtype, last=False):
    operands = [each.to(dtype) for each in (images, weights, bias)]
    if last:
        operands = [
            each.to(memory_format=LAST[each.dim()]) if each.dim() > 1 else each for each in operands
        ]
    mine = [each.cpu() for each in both_ways(function, *operands, "loom")]
    on_cpu = both_ways(function, *operands, "cpu")
    exact = both_ways(function, *(each.double() for each in operands), "cpu")
    bound = 2e-5 if dtype == torch.float32 else 2e-2
    for found, theirs, right in zip(mine, on_cpu, exact, strict=True):
        assert found.dtype == theirs.dtype
        assert found.stride() == theirs.stride()
        size = right.abs().max().item()
        torch.testing.assert_close(found.double(), right, rtol=bound, atol=bound * size)
    torch.loom.set_num_threads(1)
    for one, many in zip(both_ways(function, *operands, "loom"), mine, strict=True):
        assert torch.equal(one.cpu(), many)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("images", "weights", "window"),
    [
        ((2, 16, 8, 14, 14), (32, 16, 3, 3, 3), {"padding": 1}),
        ((2, 32, 4, 12, 13), (48, 32, 1, 3, 3), {"padding": (0, 1, 1)}),
        ((1, 3, 8, 28, 28), (32, 3, 3, 7, 7), {"stride": (1, 2, 2), "padding": (1, 3, 3)}),
        ((3, 24, 5, 9, 9), (40, 24, 3, 1, 1), {"padding": (1, 0, 0)}),
        ((2, 24, 5, 9, 9), (40, 24, 1, 1, 1), {}),
        ((2, 24, 9, 12, 12), (24, 12, 3, 3, 3), {"groups": 2, "dilation": 2}),
    ],
    ids=str,
)
def test_volumes(images, weights, window, last, dtype):
    torch.manual_seed(0)
    operands = torch.randn(images), torch.randn(weights) / 8, torch.randn(weights[0])
    check(lambda *own: F.conv3d(*own, **window), *operands, dtype, last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("images", "weights", "window"),
    [
        ((1, 96, 14, 14), (64, 96, 3, 3), {"padding": 12, "dilation": 12}),
        ((2, 48, 9, 20), (40, 48, 3, 3), {"padding": (12, 18), "dilation": (12, 18)}),
        ((2, 32, 16, 16), (32, 32, 5, 5), {"padding": 12, "dilation": 6, "stride": 2}),
    ],
    ids=str,
)
def test_windows_that_see_little(images, weights, window, last, dtype):
    torch.manual_seed(0)
    operands = torch.randn(images), torch.randn(weights) / 8, torch.randn(weights[0])
    check(lambda *own: F.conv2d(*own, **window), *operands, dtype, last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("images", "weights", "window"),
    [
        ((1, 64, 40, 40), (96, 16, 3, 3), {"padding": 1, "groups": 4}),
        ((1, 96, 31, 30), (96, 6, 3, 3), {"padding": 1, "groups": 16, "stride": 2}),
        ((4, 60, 20, 20), (80, 6, 3, 3), {"padding": 1, "groups": 10}),
        ((3, 24, 33, 35), (48, 8, 5, 5), {"padding": 2, "groups": 3}),
        ((2, 64, 64, 64), (32, 32, 1, 1), {"groups": 2}),
    ],
    ids=str,
)
def test_groups(images, weights, window, last, dtype):
    torch.manual_seed(0)
    operands = torch.randn(images), torch.randn(weights) / 4, torch.randn(weights[0])
    check(lambda *own: F.conv2d(*own, **window), *operands, dtype, last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("images", "weights", "window"),
    [
        ((2, 32, 6, 12, 12), (32, 16, 2, 2, 2), {"stride": 2}),
        ((2, 24, 5, 9, 10), (24, 16, 3, 4, 3), {"stride": (1, 2, 1), "padding": (1, 0, 2)}),
        ((2, 48, 30, 30), (48, 8, 3, 3), {"groups": 4, "stride": 2, "output_padding": 1}),
        ((1, 64, 400), (64, 32, 16), {"stride": 8, "padding": 4}),
        (
            (2, 2, 14, 14, 14),
            (2, 2, 4, 5, 6),
            {
                "stride": (3, 2, 1),
                "padding": (1, 2, 3),
                "output_padding": (2, 3, 1),
                "groups": 2,
                "dilation": 4,
            },
        ),
    ],
    ids=str,
)
def test_transposed(images, weights, window, dtype):
    torch.manual_seed(0)
    filters = weights[1] * window.get("groups", 1)
    operands = torch.randn(images), torch.randn(weights) / 4, torch.randn(filters)
    check(lambda *own: turned[len(images)](*own, **window), *operands, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("signals", "weights", "window"),
    [
        ((1, 80, 3000), (96, 80, 3), {"padding": 1}),
        ((1, 96, 3001), (96, 96, 3), {"padding": 1, "stride": 2}),
        ((2, 70, 2000), (64, 70, 5), {"padding": 4, "dilation": 2}),
        ((1, 1, 16000), (64, 1, 65), {"stride": 5}),
        ((1, 513, 999), (130, 513, 2), {"padding": 1}),
    ],
    ids=str,
)
def test_long_signals(signals, weights, window, dtype):
    torch.manual_seed(0)
    operands = torch.randn(signals), torch.randn(weights) / 16, torch.randn(weights[0])
    check(lambda *own: F.conv1d(*own, **window), *operands, dtype)
