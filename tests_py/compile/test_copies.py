# SPDX-License-Identifier: BSD-3-Clause
"""Nests that only copy, in another order: the operator's copy, and no C++."""

import pytest
import torch
from compile_support import source_of

pytestmark = pytest.mark.thorough


def image(dtype=torch.float32):
    return torch.arange(4 * 8 * 20 * 24).reshape(4, 8, 20, 24).to(dtype)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.permute(3, 1, 0, 2).contiguous(),
        lambda x: x[1:3, :, 2:].transpose(2, 3).contiguous(),
        lambda x: x[:, :1].expand(4, 9, 20, 24).transpose(1, 3).contiguous(),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_another_order_is_copied_by_the_operator(function, dtype):
    source = source_of(function, image(dtype))
    assert ".copy_(reinterpret_tensor(" in source
    assert "loom_kernel(async_compile" not in source


def test_parts_of_a_concatenation():
    x = torch.randn(70, 90)
    source = source_of(lambda x, y: torch.cat([x.t(), y], 1), x, torch.randn(90, 100))
    assert source.count(".copy_(reinterpret_tensor(") == 1


def test_into_an_input():
    source = source_of(lambda x, y: x.copy_(y.t()), torch.zeros(80, 90), torch.ones(90, 80))
    assert ".copy_(reinterpret_tensor(" in source


def test_what_is_computed_from_it():
    def function(x):
        turned = x.t().contiguous()
        return turned, torch.relu(turned) * 2, turned @ x

    source_of(function, torch.randn(128, 64))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, :, :5, :4].transpose(2, 3).contiguous(),  # few elements
        lambda x: x[:, :, :, ::2].transpose(2, 3).contiguous(),
        lambda x: x.transpose(2, 3).contiguous().half(),
    ],
)
def test_what_is_compiled(function):
    assert ".copy_(reinterpret_tensor(" not in source_of(function, image())
