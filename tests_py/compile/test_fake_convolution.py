# SPDX-License-Identifier: BSD-3-Clause
"""Fake tensors promise the layouts that loom's convolutions give."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

pytestmark = pytest.mark.thorough

SHAPES = {
    "square": ((2, 8, 12, 12), (16, 8, 3, 3), 1),
    "one_by_one": ((2, 8, 12, 12), (16, 8, 1, 1), 1),
    "depthwise": ((2, 8, 12, 12), (8, 1, 3, 3), 8),
    "one_dimension": ((2, 8, 30), (16, 8, 3), 1),
    "three_dimensions": ((1, 4, 6, 6, 6), (5, 4, 3, 3, 3), 1),
}
FORMATS = {
    "contiguous": {4: torch.contiguous_format},
    "channels_last": {4: torch.channels_last},
}


def convolve(x, w, groups):
    rank = x.dim() - 2
    ones, zeros = [1] * rank, [0] * rank
    y = torch.ops.aten.convolution(x, w, None, ones, zeros, ones, False, zeros, groups)
    grads = torch.ops.aten.convolution_backward(
        y, x, w, None, ones, zeros, ones, False, zeros, groups, [True, True, False]
    )
    return [y, *grads[:2]]


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_strides_are_those_of_the_operator(shape, layout):
    input_shape, weight_shape, groups = SHAPES[shape]
    memory_format = FORMATS[layout].get(len(input_shape), torch.contiguous_format)
    x = torch.randn(input_shape, device="loom").contiguous(memory_format=memory_format)
    w = torch.randn(weight_shape, device="loom").contiguous(memory_format=memory_format)
    real = convolve(x, w, groups)
    with FakeTensorMode() as mode:
        fake = convolve(mode.from_tensor(x), mode.from_tensor(w), groups)
    for promised, given in zip(fake, real, strict=True):
        assert promised.device == given.device
        assert promised.dtype == given.dtype
        assert promised.stride() == given.stride()
