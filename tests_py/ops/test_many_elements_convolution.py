# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions whose images have more than 2^31 elements or bytes, together or each."""

import pytest
import torch
from many_elements import assert_ends_with, ending_with, normals
from torch.nn import functional

BFLOAT16, FLOAT = torch.bfloat16, torch.float32
TOLERANCE = {BFLOAT16: 3e-2, FLOAT: 1e-4}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("memory_for_many_elements"),
]


def weights(filters: int, channels: int, side: int, dtype: torch.dtype) -> torch.Tensor:
    return normals(filters, channels, side, side, dtype=dtype, seed=1) / (channels * side)


def images(
    last: torch.Tensor, rows: int, dim: int, channels_last: bool, zeros: bool = False
) -> torch.Tensor:
    """The images that end with `last`, along `dim` (0 or 2)."""
    if not channels_last:
        return ending_with(last, rows, dim, zeros)
    return ending_with(last.permute(0, 2, 3, 1), rows, dim // 2, zeros).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("side", "stride", "channels_last"),
    [(1, 1, False), (3, 1, True), (3, 2, False)],
)
@pytest.mark.parametrize(("dtype", "count"), [(BFLOAT16, 2**15 + 2), (FLOAT, 2**14 + 2)])
def test_many_images(
    dtype: torch.dtype, count: int, side: int, stride: int, channels_last: bool
) -> None:
    last, weight = normals(2, 64, 32, 32, dtype=dtype), weights(8, 64, side, dtype)
    made = functional.conv2d(
        images(last, count, 0, channels_last), weight.to("loom"), None, stride, side // 2
    )
    expected = functional.conv2d(last, weight, None, stride, side // 2)
    assert_ends_with(made, expected, TOLERANCE[dtype])


def test_a_large_image() -> None:
    last, weight = normals(1, 32, 16, 2**13), weights(16, 32, 3, BFLOAT16)
    x = images(last, 2**13 + 16, 2, channels_last=False)
    made = functional.conv2d(x, weight.to("loom"), padding=1)
    expected = functional.conv2d(last, weight, padding=1)[:, :, 1:]
    assert_ends_with(made, expected, TOLERANCE[BFLOAT16], dim=2)


@pytest.mark.parametrize(
    ("dtype", "count", "side"),
    [(BFLOAT16, 2**14 + 2, 3), (FLOAT, 2**13 + 2, 1), (FLOAT, 2**13 + 2, 3)],
)
def test_the_gradients_of_many_images(dtype: torch.dtype, count: int, side: int) -> None:
    last, weight = normals(2, 64, 32, 32, dtype=dtype), weights(8, 64, side, dtype)
    gradient = normals(2, 8, 32, 32, dtype=dtype, seed=2)
    x, ours = images(last, count, 0, False, zeros=True).requires_grad_(), weight.to("loom")
    theirs, last = weight.clone().requires_grad_(), last.requires_grad_()
    functional.conv2d(last, theirs, padding=side // 2).backward(gradient)
    made = functional.conv2d(x, ours.requires_grad_(), padding=side // 2)
    made.backward(ending_with(gradient, count, zeros=True))
    assert_ends_with(x.grad, last.grad, TOLERANCE[dtype])
    scale = theirs.grad.abs().max()
    assert_ends_with(ours.grad / scale.to("loom"), theirs.grad / scale, TOLERANCE[dtype])
