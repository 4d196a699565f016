# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of bfloat16 in the default layout: products whose rows are pixels."""

import random

import pytest
import torch

F = torch.nn.functional


def numbers(*shape):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(17)) / 4).bfloat16()


def cases(count):
    """Batch, channels, filters, height and width, window, stride, padding, dilation."""
    choose = random.Random(7)
    made = []
    while len(made) < count:
        channels, filters = choose.choice((1, 3, 9, 16, 65, 300)), choose.choice((16, 40, 64, 70))
        size = choose.randint(5, 40), choose.randint(14, 90)
        kernel = choose.choice(((1, 1), (3, 3), (3, 5), (7, 7), (2, 1), (1, 9), (9, 9)))
        stride = choose.choice((1, 1, 2, 3)), choose.choice((1, 1, 2, 3))
        padding = tuple(choose.randint(0, length) for length in kernel)
        dilation = choose.choice((1, 1, 2)), choose.choice((1, 1, 2))
        reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
        if all(n + 2 * p >= r for n, p, r in zip(size, padding, reach, strict=True)):
            batch = choose.choice((1, 2, 5))
            made.append((batch, channels, filters, size, kernel, stride, padding, dilation))
    return made


def agree(images, weights, bias=None, **window):
    """Sums of the same products in float64, rounded once: only the order of adding differs."""
    actual = F.conv2d(
        images.to("loom"), weights.to("loom"), bias if bias is None else bias.to("loom"), **window
    )
    expected = F.conv2d(
        images.double(), weights.double(), bias if bias is None else bias.double(), **window
    )
    on_cpu = F.conv2d(images, weights, bias, **window)
    assert actual.dtype == torch.bfloat16
    assert actual.stride() == on_cpu.stride()
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=2**-8, atol=2**-9)


@pytest.mark.parametrize("case", cases(60), ids=str)
def test_any_window(case):
    batch, channels, filters, size, kernel, stride, padding, dilation = case
    weights = numbers(filters, channels, *kernel) / (channels * kernel[0] * kernel[1]) ** 0.5
    agree(
        numbers(batch, channels, *size),
        weights,
        numbers(filters) if (batch + channels) % 2 else None,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )


@pytest.mark.parametrize("last", ["neither", "weights", "images", "both"])
def test_layouts(last):
    images, weights = numbers(2, 32, 20, 30), numbers(48, 32, 3, 3) / 17
    if last in ("images", "both"):
        images = images.to(memory_format=torch.channels_last)
    if last in ("weights", "both"):
        weights = weights.to(memory_format=torch.channels_last)
    agree(images, weights, padding=1)


def test_long_sums_and_many_filters():
    agree(numbers(1, 600, 9, 16), numbers(200, 600, 3, 3) / 73, padding=1)


def test_infinities_reach_the_pixels_that_see_them_and_no_others():
    images = numbers(1, 32, 16, 33)
    images[0, 3, 7, 20] = float("inf")
    images[0, 5, 0, 0] = float("nan")
    weights = numbers(16, 32, 3, 3)
    expected = F.conv2d(images.float(), weights.float(), padding=1)
    actual = F.conv2d(images.to("loom"), weights.to("loom"), padding=1).cpu()
    assert torch.equal(actual.isfinite(), expected.isfinite())
    assert torch.equal(actual.isnan(), expected.isnan())


def test_results_do_not_depend_on_what_was_there_before():
    images, weights = numbers(3, 3, 40, 41).to("loom"), numbers(20, 3, 7, 7).to("loom")
    first = F.conv2d(images, weights, padding=3)
    nan = torch.full((3, 64, 40, 41), float("nan"), dtype=torch.bfloat16, device="loom")
    F.conv2d(nan, torch.full((64, 64, 3, 3), float("nan"), device="loom").bfloat16(), padding=1)
    assert torch.equal(first, F.conv2d(images, weights, padding=3))
