# SPDX-License-Identifier: BSD-3-Clause
"""Convolutions of bfloat16: products whose rows are pixels."""

import random

import pytest
import torch
from convolution_checks import agree, last_too, numbers

pytestmark = pytest.mark.thorough

F = torch.nn.functional


def result_size(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def suits(batch, channels, filters, rows, columns, kernel, last):
    """As suits_pixels() says: others are oneDNN's."""
    window, pixels = channels * kernel[0] * kernel[1], batch * rows * columns
    if filters < 16 or window < 64:
        return False
    if columns >= 14 and rows * columns >= 64 and not last:
        return True
    if window * filters > 8 << 20:
        return False
    if last:
        return pixels <= 4096 or (channels < 16 and window >= 96)
    in_order = kernel == (1, 1) or channels == 1  # of the pixels, in either layout
    few = pixels * kernel[0] <= filters and not in_order
    return few or (pixels <= 2048 and rows * columns >= 16)


def cases(count, last):
    """Batch, channels, filters, height and width, window, stride, padding, dilation."""
    choose = random.Random(7)
    made = []
    while len(made) < count:
        channels, filters = (
            choose.choice((1, 3, 9, 16, 65, 300)),
            choose.choice((16, 40, 64, 70, 600)),
        )
        size = choose.randint(2, 40), choose.randint(2, choose.choice((10, 26, 90)))
        kernel = choose.choice(((1, 1), (3, 3), (3, 5), (7, 7), (2, 1), (1, 9), (9, 9)))
        stride = choose.choice((1, 1, 2, 3)), choose.choice((1, 1, 2, 3))
        padding = tuple(choose.randint(0, 2 * length) for length in kernel)
        dilation = choose.choice((1, 1, 2)), choose.choice((1, 1, 2))
        rows, columns = map(result_size, size, kernel, stride, padding, dilation)
        batch = choose.choice((1, 2, 5))
        if min(rows, columns) > 0 and suits(batch, channels, filters, rows, columns, kernel, last):
            made.append((batch, channels, filters, size, kernel, stride, padding, dilation))
    return made


# What few random cases are: tiles of no pixel, nothing but padding in some rows, long windows.
SPECIAL = [
    (1, 32, 20, (6, 86), (1, 9), (1, 1), (0, 0), (1, 9)),
    (2, 16, 16, (5, 16), (3, 3), (1, 1), (7, 20), (1, 1)),
    (1, 32, 16, (2, 20), (3, 3), (1, 2), (9, 30), (2, 1)),
    (2, 9, 16, (20, 18), (5, 3), (1, 1), (2, 1), (1, 1)),
    (1, 300, 70, (9, 14), (3, 3), (1, 1), (1, 1), (1, 2)),
    (1, 65, 16, (14, 14), (9, 9), (1, 1), (4, 4), (1, 1)),
    (1, 2200, 16, (4, 16), (1, 3), (1, 1), (0, 1), (1, 1)),
    (3, 40, 16, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 33, 70, (2, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 20, 300, (4, 5), (3, 5), (2, 1), (1, 2), (1, 1)),
    (2, 15, 130, (6, 5), (3, 3), (2, 2), (1, 1), (2, 1)),
    (1, 15, 130, (6, 9), (3, 3), (1, 3), (1, 1), (1, 2)),
    (1, 600, 48, (2, 2), (3, 3), (1, 1), (1, 1), (1, 1)),
    (8, 70, 33, (8, 8), (1, 1), (2, 2), (0, 0), (1, 1)),
    (1, 40, 300, (3, 12), (2, 7), (1, 1), (0, 2), (1, 2)),
    (1, 40, 300, (9, 1), (3, 3), (1, 5), (1, 3), (1, 1)),
    (3, 30, 32, (12, 1), (3, 3), (1, 5), (1, 3), (1, 1)),
]


@pytest.mark.parametrize(
    ("case", "last"),
    [(case, last) for last in (False, True) for case in cases(60, last) + SPECIAL],
    ids=str,
)
def test_any_window(case, last):
    batch, channels, filters, size, kernel, stride, padding, dilation = case
    weights = (
        numbers(filters, channels, *kernel, seed=18) / (channels * kernel[0] * kernel[1]) ** 0.5
    )
    agree(
        last_too(numbers(batch, channels, *size), last),
        last_too(weights, last and channels != 65),
        numbers(filters, seed=19) if (batch + channels) % 2 else None,
        stride=stride,
        padding=padding,
        dilation=dilation,
    )


@pytest.mark.parametrize("last", ["neither", "weights", "images", "both"])
def test_layouts(last):
    images, weights = numbers(2, 32, 20, 30), numbers(48, 32, 3, 3, seed=18) / 17
    for size in (20, 7, 2):
        agree(
            last_too(images[..., :size, :size].contiguous(), last in ("images", "both")),
            last_too(weights, last in ("weights", "both")),
            padding=1,
        )


def test_long_sums_and_many_filters():
    agree(numbers(1, 600, 9, 16), numbers(200, 600, 3, 3, seed=18) / 73, padding=1)


@pytest.mark.parametrize("width", [8, 16, 33])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("channels", [13, 32])
def test_infinities_reach_the_pixels_that_see_them_and_no_others(width, channels, last):
    images = last_too(numbers(1, channels, 16, width), last)
    images[0, 3, 7, width - 1] = float("inf")
    images[0, 5, 0, 0] = float("nan")
    weights = last_too(numbers(16, channels, 3, 3, seed=18), last)
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


THREADS = """
import hashlib, torch
torch.manual_seed(3)
digest = hashlib.sha256()
shapes = (32, 16, 3, 1), (32, 40, 3, 1), (3, 40, 7, 2), (70, 33, 3, 2), (60, 8, 3, 1), (60, 2, 3, 1)
for channels, size, kernel, stride in shapes:
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(3, channels, size, size, device="loom").bfloat16()
        w = torch.randn(70, channels, kernel, kernel, device="loom").bfloat16()
        x, w = (tensor.to(memory_format=layout) for tensor in (x, w))
        y = torch.nn.functional.conv2d(x, w, padding=kernel // 2, stride=stride)
        digest.update(y.cpu().view(torch.int16).numpy().tobytes())
print(digest.hexdigest())
"""


def test_results_do_not_depend_on_the_number_of_threads(check):
    assert len({check(THREADS, LOOM_THREADS=threads).out for threads in "123"}) == 1


def test_weights_at_an_odd_place():
    images, memory = numbers(1, 32, 16, 20), numbers(1 + 16 * 32 * 9, seed=18)
    weights = memory[1:].view(16, 3, 3, 32).permute(0, 3, 1, 2)
    on_loom = memory.to("loom")[1:].view(16, 3, 3, 32).permute(0, 3, 1, 2)
    actual = F.conv2d(images.to("loom"), on_loom, padding=1)
    expected = F.conv2d(images.to("loom"), weights.clone().to("loom"), padding=1)
    assert torch.equal(actual, expected)
