# SPDX-License-Identifier: BSD-3-Clause
"""Masks in memory, read and written by generated kernels: of all widths of elements, with rests."""

import pytest
import torch
from compile_support import LOOM, assert_equal, compile_and_compare, to
from torch._inductor.utils import run_and_get_code

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("compiled_nests")]

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
)
SIZES = (1, 7, 16, 63, 64, 1003)


def values(dtype, *size):
    return torch.randint(0, 7, size).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_selection_by_a_mask(dtype):
    def select(*operands):
        masks, xs = operands[: len(SIZES)], operands[len(SIZES) :]
        return [torch.where(m, x, x * 2 + 1) for m, x in zip(masks, xs, strict=True)]

    masks = [torch.rand(n) > 0.5 for n in SIZES]
    compile_and_compare(select, *masks, *(values(dtype, n) for n in SIZES))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_as_results(dtype):
    def compare(*xs):
        return [mask for x in xs for mask in (x > 3, ~(x == 2), (x < 2) | (x >= 5))]

    compile_and_compare(compare, *(values(dtype, n) for n in SIZES))


def test_masks_of_masks():
    def combine(a, b):
        return a & b, a | ~b, a ^ b, a.to(torch.float32) + b, (a.sum(), b.any(), a.all())

    compile_and_compare(combine, torch.rand(1003) > 0.5, torch.rand(1003) > 0.1)


def test_masks_across_rows():
    def combine(mask, x):
        return torch.where(mask.t(), x, -x), mask.t() & (x > 0), (x[:, ::2] > 0)

    compile_and_compare(combine, torch.rand(37, 70) > 0.5, torch.randn(70, 37))


def test_masks_of_a_bias_and_a_row():
    def combine(mask, x):
        return x.masked_fill(mask, float("-inf")).softmax(-1), torch.where(mask[0], x, x + 1)

    compile_and_compare(combine, torch.rand(9, 67) > 0.7, torch.randn(9, 67))


def test_gradients_through_a_mask():
    x = torch.randn(31, 33)
    on_loom = x.to(LOOM).requires_grad_()
    torch.compile(lambda x: torch.relu(x) * x)(on_loom).sum().backward()
    assert_equal(on_loom.grad, 2 * x.clamp(min=0))


def test_lanes_are_not_moved_one_by_one():
    def select(mask, x):
        return torch.where(mask, x, 1.0), x > 0

    operands = to((torch.rand(256) > 0.5, torch.randn(256)), LOOM)
    _, code = run_and_get_code(torch.compile(select), *operands)
    assert "load_mask" in code[0]
    assert "store_mask" in code[0]
