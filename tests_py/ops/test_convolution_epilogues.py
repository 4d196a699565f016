# SPDX-License-Identifier: BSD-3-Clause
"""Pointwise operators that follow a convolution share its command: the same bits as one by one."""

import pytest
import torch
from epilogue_support import DTYPES, check, numbers
from torch.nn import functional as F  # noqa: N812

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_convolution_of_single_weights_in_channels_last(dtype: torch.dtype) -> None:
    def block(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, w, bias) * bias[:, None, None] + x)

    x = numbers(2, 64, 40, 40, dtype=dtype).to(memory_format=torch.channels_last)
    check(block, x, numbers(64, 64, 1, 1, dtype=dtype), numbers(64, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("size", [7, 28])
def test_a_convolution_of_single_weights(size: int, images: int, dtype: torch.dtype) -> None:
    def block(x: torch.Tensor, w: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        mean, var, weight, bias = statistics
        y = F.batch_norm(F.conv2d(x, w), mean, var, weight, bias)
        return F.relu6(y) + x

    x, w = numbers(images, 72, size, size, dtype=dtype), numbers(72, 72, 1, 1, dtype=dtype)
    mean, var, weight, bias = (numbers(72, dtype=dtype, seed=s) for s in range(4))
    check(block, x, w, mean, var.abs() + 1, weight, bias)


# Channels, filters, size, window, stride: a first layer, Winograd's, also with more tiles side by
# side than are multiplied at a time, single weights, few pixels, taps.
CONVOLUTIONS = [
    (3, 64, 60, 7, 2),
    (64, 64, 20, 3, 1),
    (16, 70, 262, 3, 1),
    (64, 128, 30, 3, 2),
    (128, 32, 24, 1, 1),
    (32, 24, 41, 5, 1),
    (256, 512, 13, 3, 2),
    (512, 300, 3, 3, 1),
]


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("images", [1, 5])
def test_a_convolution_with_batch_norm(
    images: int, dtype: torch.dtype, memory_format: torch.memory_format, shape: tuple[int, ...]
) -> None:
    channels, filters, size, window, stride = shape

    def block(x: torch.Tensor, w: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        y = F.conv2d(x, w, stride=stride, padding=window // 2)
        mean, var, weight, bias = statistics
        return F.relu(F.batch_norm(y, mean, var, weight, bias))

    x = numbers(images, channels, size, size, dtype=dtype).to(memory_format=memory_format)
    w = numbers(filters, channels, window, window, dtype=dtype).to(memory_format=memory_format)
    mean, var, weight, bias = (numbers(filters, dtype=dtype, seed=s) for s in range(4))
    check(block, x, w, mean, var.abs() + 1, weight, bias)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("channels", [48, 200])
def test_a_convolution_that_is_added_to_a_tensor(
    channels: int, memory_format: torch.memory_format
) -> None:
    """Filters that are no whole panel; each is added once."""

    def block(x: torch.Tensor, w: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
        return to.add_(F.conv2d(x, w, padding=1))

    bfloat16 = torch.bfloat16
    x = numbers(2, channels, 16, 16, dtype=bfloat16).to(memory_format=memory_format)
    to = numbers(2, 70, 16, 16, dtype=bfloat16).to(memory_format=memory_format)
    check(block, x, numbers(70, channels, 3, 3, dtype=bfloat16), to)


def test_convolutions_of_other_kinds() -> None:
    def of_groups(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.conv2d(x, w, padding=1, groups=4)) + 1

    def of_a_few_images(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(F.conv2d(x, w, stride=3) / 9)  # cut along the channels

    def transposed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv_transpose2d(x, w, stride=2).sigmoid() * 2

    def in_space(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv3d(x, w, padding=1) - 0.25)

    def of_a_line(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv1d(x, w)) * 3

    float32 = torch.float32
    check(of_groups, numbers(3, 64, 40, 40, dtype=float32), numbers(64, 16, 3, 3, dtype=float32))
    check(of_groups, numbers(1, 64, 90, 90, dtype=float32), numbers(64, 16, 3, 3, dtype=float32))
    x, w = numbers(2, 256, 12, 12, dtype=float32), numbers(512, 256, 5, 5, dtype=float32)
    check(of_a_few_images, x, w)
    check(transposed, numbers(3, 32, 30, 30, dtype=float32), numbers(32, 16, 3, 3, dtype=float32))
    check(
        in_space, numbers(2, 16, 9, 20, 20, dtype=float32), numbers(8, 16, 3, 3, 3, dtype=float32)
    )
    check(of_a_line, numbers(4, 64, 900, dtype=float32), numbers(64, 64, 5, dtype=float32))


@pytest.mark.parametrize("shape", [(1, 96, 14), (1, 200, 7), (2, 40, 33), (1, 3, 80)], ids=str)
@pytest.mark.parametrize("window", [3, 5, 4])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_follows_a_depthwise_convolution_is_written_over_its_input(
    dtype: torch.dtype, window: int, shape: tuple[int, ...]
) -> None:
    """The input has been freed when the norm's result is allocated, which has its size."""
    images, channels, size = shape

    def block(x: torch.Tensor, w: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        mean, var, weight, bias = statistics
        for _ in range(3):
            x = x * 0.5 + x.flip(1)
            x = F.conv2d(x, w, padding=window // 2, groups=channels)
            x = F.relu6(
                F.batch_norm(x, *(each[: x.shape[1]] for each in (mean, var, weight, bias)))
            )
        return x

    x, w = (
        numbers(images, channels, size, size, dtype=dtype),
        numbers(channels, 1, window, window, dtype=dtype),
    )
    mean, var, weight, bias = (numbers(channels, dtype=dtype, seed=s) for s in range(4))
    check(block, x, w, mean, var.abs() + 1, weight, bias)
