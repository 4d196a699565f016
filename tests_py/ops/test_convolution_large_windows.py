# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions whose windows are larger than images, or see nothing but padding.

oneDNN's own kernels give wrong gradients there, or read beyond their operands, on cpu as well: the
reference is float64.
"""

import pytest
import torch
from torch.nn import functional

ORDERS = {4: torch.channels_last, 5: torch.channels_last_3d}

# input, weight, stride, padding, dilation
PLAIN = [
    ((2, 8, 2, 9, 9), (8, 8, 3, 3, 3), 1, 1, 1),
    ((2, 8, 3, 9, 9), (8, 8, 4, 3, 3), 1, 1, 1),
    ((2, 8, 9, 1, 9), (8, 8, 3, 5, 3), 1, (1, 2, 1), 1),
    ((3, 16, 6, 1, 1), (4, 16, 2, 1, 1), (1, 1, 2), (3, 4, 5), (1, 1, 2)),
    ((3, 16, 6, 4, 4), (4, 16, 2, 1, 1), 1, (1, 1, 1), 1),
    ((2, 16, 1, 1, 1), (16, 16, 1, 1, 1), 1, 1, 1),
    ((2, 16, 1, 1), (16, 16, 1, 1), 1, 1, 1),
    ((3, 24, 8, 1), (4, 24, 1, 5), (1, 2), (0, 4), (3, 1)),
    ((3, 32, 8, 1), (64, 32, 1, 2), (1, 2), (0, 1), (2, 1)),
    ((1, 32, 3, 2), (16, 32, 4, 3), (1, 3), (2, 1), 1),
    ((2, 16, 6, 2), (32, 16, 3, 3), (1, 3), (0, 1), (2, 1)),
    ((2, 16, 4, 2), (32, 16, 2, 3), (1, 3), (1, 2), 1),
]
TRANSPOSED = [
    ((3, 6, 6, 8, 10), (6, 9, 5, 5, 4), (1, 1, 2), (3, 1, 0), 1),
    ((2, 16, 4, 9, 9), (16, 17, 3, 5, 2), 1, (2, 1, 1), (1, 3, 3)),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("transposed", "case"),
    [*((False, case) for case in PLAIN), *((True, case) for case in TRANSPOSED)],
    ids=str,
)
def test_gradients_are_those_of_float64(transposed, case, last, dtype):
    shape, of_weight, stride, padding, dilation = case
    torch.manual_seed(0)
    kind = "conv_transpose" if transposed else "conv"
    convolve = getattr(functional, f"{kind}{len(shape) - 2}d")
    values = [torch.randn(shape).to(dtype), torch.randn(of_weight).to(dtype)]
    channels = of_weight[1] if transposed else of_weight[0]
    values.append(torch.randn(channels).to(dtype))

    def outcome(*operands, grad):
        leaves = [operand.detach().requires_grad_() for operand in operands]
        result = convolve(*leaves, stride=stride, padding=padding, dilation=dilation)
        gradients = torch.autograd.grad(result, leaves, grad.to(result.device, result.dtype))
        return result.detach(), *gradients

    exactly = [value.double() for value in values]
    result = convolve(*exactly, stride=stride, padding=padding, dilation=dilation)
    grad = torch.randn(result.shape).to(dtype)
    expected = outcome(*exactly, grad=grad)
    if last:
        order = ORDERS[len(shape)]
        values[0], grad = (
            values[0].contiguous(memory_format=order),
            grad.contiguous(memory_format=order),
        )
    # What is read beyond an operand, or not written, is no number.
    garbage = [torch.full((2**power,), torch.nan, device="loom") for power in range(6, 17)]
    del garbage
    actual = outcome(*(value.to("loom") for value in values), grad=grad)
    for mine, exact in zip(actual, expected, strict=True):
        bound = 1e-2 * float(exact.abs().max())
        torch.testing.assert_close(mine.cpu().double(), exact, rtol=1e-2, atol=bound)
